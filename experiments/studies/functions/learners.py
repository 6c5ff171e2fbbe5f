"""From one learner function to sixteen: time, dollars, return, staleness, stages of a gradient."""

from collections.abc import Mapping, Sequence

from experiments.experiment import Done, Experiment
from experiments.functions import (
    account_table,
    body,
    bound_panel,
    breakdown_panel,
    staleness_panel,
)
from experiments.grid import HOPPER, Body, Grid, Scale
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import compared, runs
from experiments.reporting.findings import Claim, Findings, Panel, Series
from experiments.reporting.statistics import Interval, interval, verdict

_NUMBERS = (1, 2, 4, 8, 16)
_SLICES = 16
_CLAIM = "More learner functions learn in less time (Stellaris)"


def _name(num: int) -> str:
    return "1 function" if num == 1 else f"{num} functions"


def plan(scale: Scale, _done: Done) -> Grid:
    """A round's samples in sixteen slices, shared by one function or more."""
    grid = Grid()
    for seed in range(scale.seeds):
        for num in scale.of(_NUMBERS, (1, 2)):
            functions: Body = {"num": num, "slices": scale.of(_SLICES, 2)}
            grid.add_job(_name(num), HOPPER, seed, body(scale, HOPPER, functions=functions))
    return grid


def find(scale: Scale, done: Done) -> Findings:
    """Return and time of each number."""
    panels, tables = compared(done, actors=False)
    numbers = scale.of(_NUMBERS, (1, 2))
    groups = {_name(num): found for num in numbers if (found := runs(done, _name(num), HOPPER))}
    made = [num for num in numbers if _name(num) in groups]
    return Findings(
        panels=(
            *panels,
            _over(made, "time on AWS (s)", [_seconds(groups[_name(n)]) for n in made]),
            staleness_panel("Staleness of gradients", groups),
            bound_panel("Bound by round", groups),
            breakdown_panel("Stages of a gradient", groups),
        ),
        tables=(*tables, account_table("Gradients of functions", groups)),
        claims=_claims(groups, made),
        notes=(
            "Times on AWS are projected from durations measured here, where all functions share a "
            "few cores.",
        ),
    )


def _claims(groups: Mapping[str, Sequence[JobOutcome]], made: Sequence[int]) -> tuple[Claim, ...]:
    if len(made) < 2:
        return ()
    one, most = (_seconds(groups[_name(num)]) for num in (made[0], made[-1]))
    text = f"{HOPPER}: {_name(made[0])} {one} s, {_name(made[-1])} {most} s"
    return (Claim(paper=_CLAIM, ours=text, verdict=verdict(one, most)),)


def _seconds(found: Sequence[JobOutcome]) -> Interval:
    return interval([run.projected_wall_s for run in found])


def _over(numbers: Sequence[int], label: str, points: Sequence[Interval]) -> Panel:
    return Panel(
        title="Time over functions",
        x_label="functions",
        y_label=label,
        series=(Series.of(label, numbers, points),),
    )


EXPERIMENT = Experiment(
    name="learners",
    title="One learner function to sixteen",
    paper="Stellaris (SC 2024): number of learners",
    plan=plan,
    find=find,
    seeds=5,
)
