"""Conditions side by side: returns at equal rounds, at equal dollars, and what they took."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal

import numpy as np

from experiments.grid import ATARI, MUJOCO, Scale, most_actors
from experiments.outcome import JobOutcome, Outcomes
from experiments.reporting.findings import Claim, Panel, Series, Table, Value
from experiments.reporting.statistics import Interval, interval, verdict

Equal = Literal["rounds", "dollars", "steps"]
_POINTS = 11
"""Places along the dollars at which returns are compared."""
WARM_NOTE = (
    "A fixed number of actors is billed as a job of its own: with as many warm environments as it "
    "launches. These runs had the range of the others."
)
USUAL_RETURN = dict(
    zip((*MUJOCO, *ATARI), (600.0, 1000.0, 1000.0, 1200.0, 300.0, 300.0), strict=True)
)
"""By which returns of several environments are divided before they are pooled: the published
code's constants."""


def conditions(done: Outcomes, env_id: str) -> list[str]:
    """Return the conditions made on an environment, in the order they were planned."""
    return list(dict.fromkeys(key.condition for key in done if key.env_id == env_id))


def environments(done: Outcomes) -> list[str]:
    """Return the environments, in the order they were planned."""
    return list(dict.fromkeys(key.env_id for key in done))


def runs(done: Outcomes, condition: str, env_id: str) -> list[JobOutcome]:
    """Return the runs of one condition, by seed."""
    return [o for k, o in done.items() if k.condition == condition and k.env_id == env_id]


def fixed_alone(done: Outcomes, names: Iterable[str], *, scale: Scale) -> Outcomes:
    """Return all outcomes, those of fixed numbers billed as jobs of such a number alone.

    Their runs had the others' range, and environments kept warm for evaluations beside their actors
    or, in earlier runs, as many as the range has at most. A job that has a fixed number from the
    start keeps only those.

    Args:
        done: All outcomes.
        names: Of the conditions with a fixed number.
        scale: As they were planned.
    """
    most, alone = most_actors(scale), set(names)
    return {
        key: outcome.keeping_warm(
            outcome.rounds[0].num_actors, instead_of=outcome.mean_warm or most
        )
        if key.condition in alone
        else outcome
        for key, outcome in done.items()
    }


def returns_by_round(done: Outcomes, env_id: str) -> Panel:
    """Return each condition's return over policy updates."""
    return Panel(
        title=env_id,
        x_label="policy updates",
        y_label="return (interquartile mean)",
        series=tuple(
            curve(
                name, _updates(found), [[r.return_after(x) for r in found] for x in _updates(found)]
            )
            for name in conditions(done, env_id)
            if (found := runs(done, name, env_id))
        ),
    )


def returns_by_usd(done: Outcomes, env_id: str) -> Panel:
    """Return each condition's return over money, as far as every run of it went."""
    series = []
    for name in conditions(done, env_id):
        found = runs(done, name, env_id)
        grid = np.linspace(0.0, min(r.total_usd for r in found), _POINTS).tolist()
        series.append(curve(name, grid, [[r.return_at_usd(usd) for r in found] for usd in grid]))
    return Panel(
        title=env_id,
        x_label="projected cost (USD)",
        y_label="return (interquartile mean)",
        series=tuple(series),
    )


def actors_by_round(done: Outcomes, env_id: str) -> Panel:
    """Return each condition's mean number of actors over rounds."""
    series = []
    for name in conditions(done, env_id):
        found = runs(done, name, env_id)
        count = min(len(r.rounds) for r in found)
        counts = [fmean(r.rounds[k].num_actors for r in found) for k in range(count)]
        series.append(Series(label=name, x=tuple(range(count)), y=tuple(counts)))
    return Panel(title=env_id, x_label="round", y_label="actors", kind="step", series=tuple(series))


def common_usd(done: Outcomes, env_id: str) -> float:
    """Return the most money that every run on an environment has spent."""
    return min(o.total_usd for k, o in done.items() if k.env_id == env_id)


def comparison_table(done: Outcomes, env_id: str) -> Table:
    """Return what each condition reached and took."""
    usd = common_usd(done, env_id)
    steps = min(o.env_steps for k, o in done.items() if k.env_id == env_id)
    rows: list[tuple[Value, ...]] = []
    for name in conditions(done, env_id):
        found = runs(done, name, env_id)
        rows.append(
            (
                name,
                len(found),
                str(final_return(done, name, env_id)),
                str(return_at_usd(done, name, env_id, usd)),
                str(return_at_steps(done, name, env_id, steps)),
                round(fmean(r.mean_actors for r in found), 1),
                round(fmean(r.env_steps for r in found)),
                str(interval([r.total_usd for r in found])),
                round(fmean(r.projected_wall_s for r in found), 1),
            )
        )
    return Table(
        title=env_id,
        columns=(
            "condition",
            "runs",
            "final return",
            f"return at ${usd:.4f}",
            f"return after {steps:,} steps",
            "actors per round",
            "steps",
            "cost (USD)",
            "time on AWS (s)",
        ),
        rows=tuple(rows),
    )


def pooled_table(done: Outcomes) -> Table:
    """Return final returns pooled over environments, each divided by its usual return."""
    envs = environments(done)
    names = [c for c in conditions(done, envs[0]) if all(c in conditions(done, e) for e in envs)]
    rows: list[tuple[Value, ...]] = []
    for name in names:
        final = [[r.final_return / USUAL_RETURN[e] for r in runs(done, name, e)] for e in envs]
        equal = [
            [r.return_at_usd(common_usd(done, e)) / USUAL_RETURN[e] for r in runs(done, name, e)]
            for e in envs
        ]
        rows.append((name, str(interval(*final)), str(interval(*equal))))
    return Table(
        title=f"All of {', '.join(envs)}; returns divided by the published code's constants",
        columns=("condition", "at equal rounds", "at equal dollars"),
        rows=tuple(rows),
    )


def final_return(done: Outcomes, condition: str, env_id: str) -> Interval:
    """Return a condition's final return."""
    return interval([r.final_return for r in runs(done, condition, env_id)])


def return_at_usd(done: Outcomes, condition: str, env_id: str, usd: float) -> Interval:
    """Return a condition's return after so much money."""
    return interval([r.return_at_usd(usd) for r in runs(done, condition, env_id)])


def return_at_steps(done: Outcomes, condition: str, env_id: str, steps: float) -> Interval:
    """Return a condition's return after so many environment steps."""
    return interval([r.return_at_steps(steps) for r in runs(done, condition, env_id)])


def higher_return(
    done: Outcomes, better: str, worse: str, *, paper: str, equal: Equal = "rounds"
) -> tuple[Claim, ...]:
    """Return per environment whether one condition's return is the higher.

    Args:
        done: All outcomes.
        better: The condition claimed to be better.
        worse: The other one.
        paper: The claim.
        equal: What both have had: rounds, dollars or environment steps.
    """
    claims = []
    for env_id in environments(done):
        if not {better, worse} <= set(conditions(done, env_id)):
            continue
        both = [r for name in (better, worse) for r in runs(done, name, env_id)]
        if equal == "dollars":
            usd = min(r.total_usd for r in both)
            ours, theirs = (return_at_usd(done, n, env_id, usd) for n in (better, worse))
            where = f"at ${usd:.4f}"
        elif equal == "steps":
            steps = min(r.env_steps for r in both)
            ours, theirs = (return_at_steps(done, n, env_id, steps) for n in (better, worse))
            where = f"after {steps:,} steps"
        else:
            ours, theirs = (final_return(done, n, env_id) for n in (better, worse))
            where = "at equal rounds"
        text = f"{env_id}, {where}: {better} {ours}, {worse} {theirs}"
        claims.append(Claim(paper=paper, ours=text, verdict=verdict(ours, theirs)))
    return tuple(claims)


def cheaper(done: Outcomes, cheap: str, dear: str, *, paper: str) -> tuple[Claim, ...]:
    """Return per environment whether one condition costs less."""
    claims = []
    for env_id in environments(done):
        if {cheap, dear} <= set(conditions(done, env_id)):
            low = interval([r.total_usd for r in runs(done, cheap, env_id)])
            high = interval([r.total_usd for r in runs(done, dear, env_id)])
            text = f"{env_id}: {cheap} ${low}, {dear} ${high}"
            claims.append(Claim(paper=paper, ours=text, verdict=verdict(high, low)))
    return tuple(claims)


def compared(done: Outcomes, *, actors: bool = True) -> tuple[tuple[Panel, ...], tuple[Table, ...]]:
    """Return panels and tables of all conditions on all environments."""
    panels, tables = [], []
    for env_id in environments(done):
        panels += [returns_by_round(done, env_id), returns_by_usd(done, env_id)]
        panels += [actors_by_round(done, env_id)] if actors else []
        tables.append(comparison_table(done, env_id))
    if len(environments(done)) > 1 and set(environments(done)) <= USUAL_RETURN.keys():
        tables.append(pooled_table(done))
    return tuple(panels), tuple(tables)


def _updates(found: Sequence[JobOutcome]) -> list[float]:
    return [float(e.updates) for e in found[0].evaluations]


def curve(label: str, x: Sequence[float], samples: Sequence[Sequence[float]]) -> Series:
    """Return the interquartile means of each point's runs, with their intervals."""
    return Series.of(label, x, [interval(values) for values in samples])
