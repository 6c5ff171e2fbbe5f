"""The picture of several runs: returns by steps and by dollars, and actors and dollars by steps.

Runs that differ only in their seed are drawn as one: their mean with its 95 % interval, or with the
minimum and maximum for few seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from nitro.errors import CommandError
from nitro.runs.configuration import configuration, different_fields
from nitro.runs.curves import FEWEST_FOR_INTERVAL, Measure, bootstrap, common_measure, curve, taken
from nitro.runs.drawing.figures import new_figure
from nitro.runs.reading import Run
from nitro.runs.report import shown

COMPARED = "plots/compared.png"
"""Path of the picture in the folder of the first run."""

Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # x [K] ascending, y [K]
_POINTS = 200
"""Points along a band."""
_MOST_FIELDS = 3
"""Most fields in a label; with more, the run's name is shorter."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Runs of one configuration."""

    label: str
    runs: tuple[Run, ...]


def draw_together(runs: Sequence[Run], path: Path | None = None) -> Path:
    """Plot runs in one picture and return its path.

    Args:
        runs: Two or more.
        path: The file to write; default: `plots/compared.png` in the first run's folder.

    Raises:
        CommandError: The runs have different environments, one has no return yet, or the file
            cannot be written.
    """
    measure = common_measure(runs)
    _require_comparable(runs, measure)
    target = path or runs[0].folder / COMPARED
    groups = _groups(runs)
    with new_figure(target, width=11, height=7.5) as figure:
        panels = figure.subplots(2, 2)
        (by_steps, by_usd), (actors, money) = panels
        _draw(by_steps, groups, lambda run: _returns(run, measure, by="env_steps"))
        _draw(by_usd, groups, lambda run: _returns(run, measure, by="cost_usd"))
        _draw(actors, groups, _actors)
        _draw(money, groups, _dollars)
        unit = "evaluation" if measure == "evaluation" else "last 100 training episodes"
        for panel in (by_steps, by_usd):
            panel.set_ylabel(f"return per episode ({unit})")
        by_usd.set_xlabel("cost (USD, projected)")
        for panel in (by_steps, actors, money):
            panel.set_xlabel("environment steps")
        actors.set_ylabel("actors per round")
        actors.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        for panel in (actors, money):
            panel.set_ylim(bottom=0)
        money.set_ylabel("cost (USD, projected)")
        handles, labels = by_steps.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figure.suptitle(runs[0].job.spec.env_id, fontsize=11)
    return target


def _require_comparable(runs: Sequence[Run], measure: Measure) -> None:
    environments = sorted({run.job.spec.env_id for run in runs})
    if len(environments) > 1:
        raise CommandError(
            f"RUN: returns of {', '.join(environments)} cannot share a picture: "
            "name runs of one environment"
        )
    for run in runs:
        if not len(curve(run, measure).returns):
            raise CommandError(f"{run.folder}: no return yet, so there is nothing to draw")


def _groups(runs: Sequence[Run]) -> list[_Group]:
    """Group runs that differ only in their seed, and label the groups by their differences."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        fields = {k: v for k, v in configuration(run.job).items() if k != "seed"}
        members.setdefault(shown(fields), []).append(run)
    firsts = [found[0] for found in members.values()]
    differing = [
        each for each in different_fields([run.job for run in firsts]) if each.field != "seed"
    ]
    groups = []
    for index, found in enumerate(members.values()):
        told = [
            f"{each.field.rpartition('.')[2]} {shown(each.values[index])}"
            for each in differing
            if each.values[index] is not None
        ]
        spec = found[0].job.spec
        told = told or [f"{spec.algorithm}, {spec.preset}"]
        label = ", ".join(told) if len(told) <= _MOST_FIELDS else found[0].job.job_id
        seeds = f"seed {spec.seed}"
        if len(found) > 1:
            band = "lowest to highest" if len(found) < FEWEST_FOR_INTERVAL else "95 % interval"
            seeds = f"{len(found)} seeds: mean, {band}"
        groups.append(_Group(f"{label} ({seeds})", tuple(found)))
    return groups


def _draw(panel: Axes, groups: Sequence[_Group], line_of: Callable[[Run], Line]) -> None:
    colours = mpl.color_sequences["tab10"]
    for index, group in enumerate(groups):
        lines = [line_of(run) for run in group.runs]
        colour = colours[index % len(colours)]
        if len(lines) == 1:
            panel.plot(*lines[0], color=colour, linewidth=1.6, label=group.label)
            continue
        # Only as far as every seed went: the mean would jump where a seed ends.
        grid = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), _POINTS)
        values = np.stack([np.interp(grid, x, y) for x, y in lines])
        mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        if len(lines) >= FEWEST_FOR_INTERVAL:
            mean, low, high = bootstrap(values)
        panel.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
        panel.plot(grid, mean, color=colour, linewidth=1.8, label=group.label)


def _returns(run: Run, measure: Measure, *, by: str) -> Line:
    found = curve(run, measure)
    return (found.env_steps if by == "env_steps" else found.cost_usd), found.returns


def _actors(run: Run) -> Line:
    steps, _ = taken(run)
    counts = [line.plan.num_actors for line in run.rounds if line.result]
    return np.array(steps[1:], dtype=float), np.array(counts, dtype=float)


def _dollars(run: Run) -> Line:
    steps, dollars = taken(run)
    return np.array(steps, dtype=float), np.array(dollars, dtype=float)
