"""Jobs whose gradients functions compute, and what the records of their gradients come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.grid import Body, Scale, fixed, job_body
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import curve
from experiments.reporting.findings import Panel, Table
from experiments.reporting.statistics import interval
from shared.contracts.gradients import GradientRecord

FUNCTIONS, CPU, GPU = "functions", "synchronous, CPU", "synchronous, GPU"
_ACTORS = 8
_SAMPLES = 2048
"""Of a round, shared by its actors."""
_ROUNDS = 50
_STAGES = ("invoke", "fetch", "compute", "push", "aggregate")


def body(
    scale: Scale, env_id: str, *, learner: str = "functions", functions: Body | None = None
) -> Body:
    """Return a job of 102,400 steps, whose episodes go on.

    Args:
        scale: Full or quick.
        env_id: The environment.
        learner: As in a job.
        functions: Fields of its `learner_functions`.
    """
    common = job_body(
        scale,
        env_id,
        rounds=_ROUNDS,
        actors=(_ACTORS, _ACTORS),
        evaluate_every=5,
        preset="standard",
    )
    num_actors = scale.of(_ACTORS, 4)
    changes: Body = {
        "learner": learner,
        "scaling": fixed(num_actors),
        "steps_per_actor": scale.of(_SAMPLES // _ACTORS, 32),
        "episodes": {"horizon": "limit"},
        "warm": "reuse",
    }
    if functions:
        changes["learner_functions"] = {**functions}
    return {**common, **changes}


def records(found: Sequence[JobOutcome]) -> list[GradientRecord]:
    """Return what is recorded of the gradients of all rounds of some runs."""
    return [each.gradients for run in found for each in run.rounds if each.gradients]


def staleness_shares(run: JobOutcome, most: int) -> list[float]:
    """Return the share of a run's used gradients of each staleness from 0 to `most`.

    All are 0 for a run that has used none.
    """
    counted = Counter(_staleness(run))
    return [counted[age] / max(1, counted.total()) for age in range(most + 1)]


def staleness_panel(title: str, groups: Mapping[str, Sequence[JobOutcome]]) -> Panel:
    """Return how stale used gradients were, a series a group of at least one run."""
    stale = (age for found in groups.values() for run in found for age in _staleness(run))
    most = max(stale, default=-1)
    ages = range(most + 1)
    return Panel(
        title=title,
        x_label="staleness (steps)",
        y_label="share of gradients (interquartile mean)",
        kind="bar",
        categories=tuple(map(str, ages)),
        series=tuple(
            curve(
                name, ages, list(zip(*(staleness_shares(run, most) for run in found), strict=True))
            )
            for name, found in groups.items()
        ),
    )


def bound_panel(title: str, groups: Mapping[str, Sequence[JobOutcome]]) -> Panel:
    """Return the bound on the staleness in each round, over those of a group that have one."""
    series = []
    for name, found in groups.items():
        by_round = {
            index: [bound for run in found if (bound := _bound(run, index)) is not None]
            for index in range(min(len(run.rounds) for run in found))
        }
        told = {index: bounds for index, bounds in by_round.items() if bounds}
        series.append(curve(name, list(told), list(told.values())))
    return Panel(
        title=title,
        x_label="round",
        y_label="bound (interquartile mean)",
        kind="step",
        series=tuple(series),
    )


def breakdown_panel(title: str, groups: Mapping[str, Sequence[JobOutcome]]) -> Panel:
    """Return the mean seconds of each stage of a gradient, a series a group of at least one run."""
    return Panel(
        title=title,
        x_label="",
        y_label="seconds (interquartile mean)",
        kind="bar",
        categories=_STAGES,
        series=tuple(
            curve(
                name,
                range(len(_STAGES)),
                [[stage_s([run], stage) for run in found] for stage in _STAGES],
            )
            for name, found in groups.items()
        ),
    )


def stage_s(found: Sequence[JobOutcome], stage: str) -> float:
    """Return the mean seconds of one stage; 0 where nothing was recorded."""
    return fmean([getattr(record, f"{stage}_s") for record in records(found)] or [0.0])


def _staleness(run: JobOutcome) -> list[int]:
    return [age for record in records([run]) for age in record.staleness]


def _bound(run: JobOutcome, index: int) -> float | None:
    made = run.rounds[index].gradients
    return made.bound if made else None


def account_table(title: str, groups: Mapping[str, Sequence[JobOutcome]]) -> Table:
    """Return what became of all gradients, and how stale they were."""
    return Table(
        title=title,
        columns=(
            "condition",
            "runs",
            "asked",
            "used",
            "stale",
            "lost",
            "duplicate",
            "mean staleness",
            "steps a round",
        ),
        rows=tuple(
            (
                name,
                len(found),
                *(sum(getattr(r, what) for r in records(found)) for what in _FATES),
                _told([fmean(_staleness(run)) for run in found]),
                _told([fmean([r.steps for r in records([run])]) for run in found]),
            )
            for name, found in groups.items()
        ),
    )


_FATES = ("asked", "used", "stale", "lost", "duplicate")


def _told(values: Sequence[float]) -> str:
    return str(interval(values))
