"""The picture of a run: return, actors, boosting score and cost over its rounds, in one file.

A search has no boosting score: its noise scale is shown instead.
"""

import itertools
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from nitro.errors import CommandError
from nitro.runs.drawing.figures import new_figure
from nitro.runs.reading import Run, series, training_return
from shared.contracts.billing import LedgerItem
from shared.contracts.rounds import RoundLine

PICTURE = "plots/run.png"
"""Path of the picture in a run's folder."""

_BLUE, _ORANGE, _GREEN, _BLACK = "#2463a8", "#d9762b", "#3b8f5a", "#222222"
_ITEM_COLOURS = (
    *("#2463a8", "#d9762b", "#f0b46b", "#7b5ea7", "#b08bd0", "#3b8f5a", "#8a8f98"),
    *("#c44e52", "#e39a9c"),
)
_ITEM_LABELS: dict[LedgerItem, str] = {
    "learner": "learner",
    "lambda_duration": "actors' time",
    "gradient_duration": "gradients (Lambda)",
    "gradient_requests": "gradient requests",
    "lambda_requests": "requests",
    "provisioned_concurrency": "kept warm",
    "pings": "pings",
    "cache": "cache",
    "scaler": "scaler",
}
"""Labels short enough for one row."""
_INCHES = 11 / 9.2
"""Inches per unit of panel height; a synchronous run's picture is 11 inches high."""
_THIN: dict[str, Any] = {"marker": ".", "ms": 4, "linewidth": 1.3}


def draw(run: Run, path: Path | None = None) -> Path:
    """Plot a run and return the picture's path (default: `plots/run.png` in its folder).

    Raises:
        CommandError: The run has no finished round yet, or the file cannot be written.
    """
    target = path or run.folder / PICTURE
    if not any(line.result for line in run.rounds):
        raise CommandError(f"{run.folder}: no finished round yet, so there is nothing to draw")
    parts = [(_returns, 3.0), (_actors, 2.0), (_score, 2.0), (_cost, 2.2)]
    if _statistic(run, "noise_scale")[0]:
        parts[2] = (_noise_scale, 2.0)
    if _statistic(run, "policy_lag_mean")[0]:
        parts.insert(3, (_lag, 1.8))
    heights = [height for _, height in parts]
    with new_figure(target, width=9, height=_INCHES * sum(heights)) as figure:
        panels = figure.subplots(len(parts), 1, sharex=True, height_ratios=heights)
        for panel, (paint, _) in zip(panels, parts, strict=True):
            paint(panel, run)
        panels[-1].set_xlabel("round")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        panels[-1].set_xlim(-0.6, _last_update(run) + 0.6)
        figure.align_ylabels(panels)
        figure.suptitle(_title(run), fontsize=11)
    return target


def _last_update(run: Run) -> int:
    """Return the largest x value in the picture."""
    rounds = {line.plan.round for line in run.rounds} | {line.round for line in run.ledger}
    return max(map(run.update, rounds))


def _title(run: Run) -> str:
    spec = run.job.spec
    return (
        f"{spec.env_id}  ·  {spec.algorithm} ({spec.preset})  ·  seed {spec.seed}  ·  "
        f"scaling: {spec.scaling.policy}  ·  ended by: {run.stop}\n{run.job.job_id}"
    )


def _legend(panel: Axes, *, twin: Axes | None = None, columns: int = 4) -> None:
    """Place one legend for both axes above the panel, where it covers no data."""
    handles, labels = panel.get_legend_handles_labels()
    if twin is not None:
        more, names = twin.get_legend_handles_labels()
        handles, labels = [*handles, *more], [*labels, *names]
    panel.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.4,
        handlelength=1.6,
    )


def _twin(panel: Axes, label: str, colour: str) -> Axes:
    twin = panel.twinx()
    twin.grid(visible=False)
    twin.set_ylabel(label, color=colour)
    twin.tick_params(axis="y", colors=colour)
    twin.spines["right"].set_visible(True)
    twin.spines["right"].set_color(colour)
    return twin


def return_band(run: Run) -> tuple[list[int], list[float], list[float]]:
    """Return updates, and the mean training return minus and plus one standard deviation.

    A search measures the deviation, in each iteration of its round.
    """
    rounds, low = series(run, lambda line: _from_mean(line, -1.0))
    return rounds, low, series(run, lambda line: _from_mean(line, 1.0))[1]


def _from_mean(line: RoundLine, deviations: float) -> float | None:
    mean = training_return(line)
    deviation = line.result.stats.get("return_std") if line.result else None
    return None if mean is None or deviation is None else mean + deviations * deviation


def _returns(panel: Axes, run: Run) -> None:
    rounds, low, high = return_band(run)
    if rounds:
        label = "training episodes, mean ± deviation"
        panel.fill_between(rounds, low, high, color=_ORANGE, alpha=0.18, linewidth=0, label=label)
    rounds, means = series(run, training_return)
    panel.plot(rounds, means, color=_ORANGE, label="training episodes, mean", **_THIN)
    evaluated = [(index, result.returns) for index, result in run.evaluations if result.returns]
    if evaluated:
        where = [index for index, _ in evaluated]
        panel.fill_between(
            where,
            [min(returns) for _, returns in evaluated],
            [max(returns) for _, returns in evaluated],
            color=_BLUE,
            alpha=0.16,
            linewidth=0,
            label="evaluation, min–max",
        )
        means = [fmean(returns) for _, returns in evaluated]
        panel.plot(
            where, means, color=_BLUE, marker="o", ms=4, linewidth=1.8, label="evaluation, mean"
        )
    panel.set_ylabel("return per episode")
    _legend(panel)


def _actors(panel: Axes, run: Run) -> None:
    plans = [line.plan for line in run.rounds if line.plan.stop is None]
    rounds = [plan.round for plan in plans]
    own = [plan.own for plan in plans]
    functions = [len(plan.function_actors) for plan in plans]
    if any(own):
        panel.bar(rounds, own, width=0.8, color=_BLUE, alpha=0.7, label="on own cores")
    if any(functions) or not any(own):
        named = "functions" if any(own) else "granted"
        panel.bar(rounds, functions, bottom=own, width=0.8, color=_GREEN, label=named)
    panel.bar(
        rounds,
        [plan.requested for plan in plans],
        width=0.8,
        fill=False,
        edgecolor="#1d4a2e",
        linewidth=0.8,
        label="requested",
    )
    panel.set_ylabel("actors")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    _legend(panel)


def _score(panel: Axes, run: Run) -> None:
    panel.set_ylabel("boosting score (0–1)")
    panel.set_ylim(-0.04, 1.04)
    if not series(run, lambda line: line.plan.ratio)[0]:
        panel.text(
            0.5, 0.5, "no curvature was used in this run", ha="center", transform=panel.transAxes
        )
        return
    twin = _twin(panel, "ratio R = −λmax / λmin", _ORANGE)
    rounds, ratios = series(run, lambda line: line.plan.ratio)
    twin.plot(rounds, ratios, color=_ORANGE, linestyle="--", label="ratio R", **_THIN)
    rounds, scores = series(run, lambda line: line.plan.boosting_score)
    panel.plot(rounds, scores, color=_BLUE, marker="o", ms=3, linewidth=1.5, label="boosting score")
    panel.set_zorder(twin.get_zorder() + 1)
    panel.patch.set_visible(False)
    _legend(panel, twin=twin)


def _noise_scale(panel: Axes, run: Run) -> None:
    rounds, scales = _statistic(run, "noise_scale")
    panel.plot(rounds, scales, color=_BLUE, label="noise scale", **_THIN)
    panel.set_yscale("log")  # it has no bound where noise hides the gradient
    panel.set_ylim(min(1.0, *scales), max(100.0, 2 * max(scales)))
    panel.set_ylabel("noise scale\n(directions)")
    _legend(panel)


def _lag(panel: Axes, run: Run) -> None:
    for label, statistic, colour in (
        ("largest", "policy_lag_max", _ORANGE),
        ("mean", "policy_lag_mean", _BLUE),
    ):
        panel.plot(*_statistic(run, statistic), color=colour, label=label, **_THIN)
    panel.set_ylabel("policy lag\n(updates)")
    panel.set_ylim(bottom=0)
    _legend(panel)


def _statistic(run: Run, name: str) -> tuple[list[int], list[float]]:
    """Return updates and values of one of the learner's statistics, if present."""
    return series(run, lambda line: line.result.stats.get(name) if line.result else None)


def _cost(panel: Axes, run: Run) -> None:
    per_item: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for line in run.ledger:
        per_item[line.item][run.update(line.round)] += line.amount_usd
    rounds = sorted({run.update(line.round) for line in run.ledger})
    base = [0.0] * len(rounds)
    for item, colour in zip(get_args(LedgerItem), _ITEM_COLOURS, strict=True):
        amounts = [per_item[item][index] * 1000 for index in rounds]
        if any(amounts):
            panel.bar(
                rounds, amounts, width=0.8, bottom=base, color=colour, label=_ITEM_LABELS[item]
            )
            base = [low + amount for low, amount in zip(base, amounts, strict=True)]
    panel.set_ylabel("cost per round\n(0.001 USD, projected)")
    twin = _twin(panel, "cumulative (USD)", _BLACK)
    totals = [total / 1000 for total in itertools.accumulate(base)]
    halo = [withStroke(linewidth=3.5, foreground="white")]  # visible on dark bars
    twin.plot(rounds, totals, color=_BLACK, linewidth=1.6, path_effects=halo, label="cumulative")
    twin.set_ylim(bottom=0)
    _legend(panel, twin=twin, columns=7)
