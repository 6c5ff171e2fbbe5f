"""ARS beside PPO and SAC: returns by steps, seconds and dollars.

Every job is the one that `nitro train ENV --algorithm NAME --total-steps N` makes, on functions.
"""

from collections.abc import Mapping

from experiments.experiment import Done, Experiment
from experiments.grid import Body, Grid, Scale, first
from experiments.reporting.comparison import (
    compared,
    conditions,
    environments,
    higher_return,
    runs,
)
from experiments.reporting.findings import Findings, Table
from experiments.reporting.statistics import interval
from nitro.spec.train_spec import train_spec

STEPS: Mapping[str, Mapping[str, int]] = {
    "Swimmer-v5": {"ars": 500_000, "ppo": 500_000},
    "Pendulum-v1": {"ars": 200_000, "ppo": 200_000, "sac": 10_000},
    "Hopper-v5": {"ars": 1_000_000, "ppo": 1_000_000},
}
"""Environment steps by task and algorithm: what two cores bear. SAC makes a gradient step for each.
"""
_QUICK_STEPS = 2048
_CLAIM = "ARS learns more than PPO from equal {equal} (not the paper's)"


def plan(scale: Scale, _done: Done) -> Grid:
    """Every algorithm on its tasks."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id, steps in first(scale, tuple(STEPS.items())):
            for algorithm, number in steps.items():
                body = _trained(env_id, algorithm, scale.of(number, _QUICK_STEPS))
                grid.add_job(algorithm, env_id, seed, body)
    return grid


def _trained(env_id: str, algorithm: str, total_steps: int) -> Body:
    """Return the fields of the job that `nitro train` makes, its actors on functions."""
    spec = train_spec(
        options={
            "env_id": env_id,
            "algorithm": algorithm,
            "learner": "cpu",
            "warm": "reuse",
            "actors.own": 0,
        },
        total_steps=total_steps,
        here=True,
    )
    return spec.model_dump(mode="json", exclude={"env_id", "seed", "detector"})


def find(_scale: Scale, done: Done) -> Findings:
    """Returns side by side, and whether ARS is ahead at equal steps and equal dollars."""
    panels, tables = compared(done, actors=False)
    timed = tuple(_seconds_table(done, env_id) for env_id in environments(done))
    claims = (
        *higher_return(done, "ars", "ppo", paper=_CLAIM.format(equal="steps"), equal="steps"),
        *higher_return(done, "ars", "ppo", paper=_CLAIM.format(equal="dollars"), equal="dollars"),
    )
    return Findings(panels=panels, tables=(*timed, *tables), claims=claims)


def _seconds_table(done: Done, env_id: str) -> Table:
    """Return what each algorithm reached after equal time on AWS."""
    names = conditions(done, env_id)
    made = {name: runs(done, name, env_id) for name in names}
    seconds = min(run.projected_wall_s for each in made.values() for run in each)
    return Table(
        title=f"{env_id}: return after equal time on AWS",
        columns=("condition", f"after {seconds:.0f} s"),
        rows=tuple(
            (name, str(interval([run.return_at_seconds(seconds) for run in each])))
            for name, each in made.items()
        ),
    )


EXPERIMENT = Experiment(
    name="evolution",
    title="ARS beside PPO and SAC",
    paper="none: it has no evolution strategies",
    plan=plan,
    find=find,
    seeds=2,
)
