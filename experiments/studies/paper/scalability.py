"""Execution time of 100 to 1,000 concurrent actors (Figure 18).

From the launch to the last trajectory. On AWS every actor has an environment of its own; here all
share a few cores, so what is measured grows with their number whatever we do. The projected time is
that of the cost model: measured launch or Lambda's ramp, cold start, slowest actor.
"""

from statistics import fmean

from experiments.experiment import Done, Experiment
from experiments.grid import ATARI, HOPPER, MUJOCO, Grid, Scale, fixed, job_body
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import environments, runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import interval

_COUNTS = (100, 250, 500, 750, 1000)
_QUICK_COUNTS = (8, 16)
_ROUNDS = 3
_CONSISTENT = 1.2
"""Times the execution of the fewest actors that one of the most may take to count as consistent."""


def plan(scale: Scale, _done: Done) -> Grid:
    """A short job per number of actors; the update is kept small, as it is not looked at."""
    grid = Grid()
    counts = scale.of(_COUNTS, _QUICK_COUNTS)
    for seed in range(scale.seeds):
        for env_id in scale.of((*MUJOCO, *ATARI), (HOPPER,)):
            for count in counts:
                body = job_body(scale, env_id, rounds=_ROUNDS, actors=(1, max(counts)))
                body |= {
                    "actors": {"min": 1, "max": max(counts)},
                    "evaluation": {"every_rounds": 0},
                    "hyperparameters": {"num_epochs": 1, "minibatch_size": 4096},
                    "scaling": fixed(count),
                }
                grid.add_job(f"{count} actors", env_id, seed, body)
    return grid


def projected_s(outcome: JobOutcome) -> float:
    """Return a round's time on AWS from the launch to the last trajectory."""
    learner_s = sum(
        t.plan_s + t.update_s + t.curvature_s + t.checkpoint_s
        for t in (r.timing for r in outcome.rounds)
    )
    return max(0.0, outcome.projected_wall_s - learner_s) / len(outcome.rounds)


def measured_s(outcome: JobOutcome) -> float:
    """Return a round's time here, from the launch to the last trajectory."""
    return fmean(r.timing.collect_s for r in outcome.rounds)


def find(scale: Scale, done: Done) -> Findings:
    """Both times over the number of actors."""
    counts = scale.of(_COUNTS, _QUICK_COUNTS)
    rows: list[tuple[Value, ...]] = []
    projected, measured, claims = [], [], []
    for env_id in environments(done):
        found = [runs(done, f"{count} actors", env_id) for count in counts]
        aws = [interval([projected_s(r) for r in group]) for group in found]
        here = [interval([measured_s(r) for r in group]) for group in found]
        x = tuple(float(count) for count in counts)
        projected.append(Series(label=env_id, x=x, y=tuple(p.value for p in aws)))
        measured.append(Series(label=env_id, x=x, y=tuple(p.value for p in here)))
        launches = [
            fmean(r.launch_s for o in group for r in o.rounds if r.launch_s is not None)
            for group in found
        ]
        rows += [
            (env_id, count, str(a), str(h), round(launch_s, 3))
            for count, a, h, launch_s in zip(counts, aws, here, launches, strict=True)
        ]
        growth = aws[-1].value / aws[0].value if aws[0].value else 0.0
        claims.append(
            Claim(
                paper="Execution time stays the same from 100 to 1,000 concurrent actors",
                ours=f"{env_id}: {growth:.2f} times as long with {counts[-1]} as with {counts[0]}, "
                "projected",
                verdict="holds (projected)" if growth <= _CONSISTENT else "does not hold",
            )
        )
    return Findings(
        panels=(
            _panel("Projected, on AWS", projected),
            _panel("Measured, all actors on this machine's cores", measured),
        ),
        tables=(
            Table(
                title="Execution time",
                columns=("environment", "actors", "projected (s)", "measured (s)", "launch (s)"),
                rows=tuple(rows),
            ),
        ),
        claims=tuple(claims),
        notes=(
            "The projected time rests on the cost model, not on a measurement of AWS; launches are "
            "measured, against the emulator.",
        ),
    )


def _panel(title: str, series: list[Series]) -> Panel:
    return Panel(title=title, x_label="actors", y_label="seconds", series=tuple(series))


EXPERIMENT = Experiment(
    name="scalability",
    title="Execution time of 100 to 1,000 concurrent actors",
    paper="Figure 18",
    plan=plan,
    find=find,
    seeds=1,
    alone=True,
)
