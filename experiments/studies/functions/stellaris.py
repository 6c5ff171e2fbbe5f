"""A learner made of functions beside synchronous ones: reward against seconds and dollars.

The synchronous runs on a GPU and on a CPU are the same updates, billed as each machine. Stellaris
reports up to 2.2 times the reward and 41 % lower cost, with functions that are containers on GPU
machines. These are Lambda functions without a GPU.
"""

from experiments.experiment import Done, Experiment
from experiments.functions import (
    CPU,
    FUNCTIONS,
    GPU,
    account_table,
    body,
    bound_panel,
    breakdown_panel,
    staleness_panel,
)
from experiments.grid import MUJOCO, Grid, Scale, first
from experiments.reporting.comparison import (
    cheaper,
    compared,
    environments,
    higher_return,
    runs,
)
from experiments.reporting.findings import Claim, Findings

_REWARD = "Stellaris: up to 2.2 times the reward"
_COST = "Stellaris: up to 41 % lower cost"
_LEARNERS = {FUNCTIONS: "functions", CPU: "cpu", GPU: "gpu"}


def plan(scale: Scale, _done: Done) -> Grid:
    """Three learners on three environments."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id in first(scale, MUJOCO):
            for name, learner in _LEARNERS.items():
                grid.add_job(name, env_id, seed, body(scale, env_id, learner=learner))
    return grid


def find(_scale: Scale, done: Done) -> Findings:
    """Returns, seconds and dollars; staleness and stages of the gradients of functions."""
    panels, tables = compared(done, actors=False)
    groups = {
        env_id: found for env_id in environments(done) if (found := runs(done, FUNCTIONS, env_id))
    }
    claims: list[Claim] = [
        *higher_return(done, FUNCTIONS, CPU, paper=_REWARD, equal="dollars"),
        *cheaper(done, FUNCTIONS, GPU, paper=_COST),
        *cheaper(done, FUNCTIONS, CPU, paper=_COST),
    ]
    return Findings(
        panels=(
            *panels,
            staleness_panel("Staleness of gradients", groups),
            bound_panel("Bound by round", groups),
            breakdown_panel("Stages of a gradient", groups),
        ),
        tables=(*tables, account_table("Gradients of functions", groups)),
        claims=tuple(claims),
        notes=(
            "Times on AWS are projected from durations measured here, where all functions share a "
            "few cores: stages of a gradient are longer than on Lambda.",
            "The learner is taken to be as fast on a GPU machine as here.",
        ),
    )


EXPERIMENT = Experiment(
    name="stellaris",
    title="A learner made of functions",
    paper="Stellaris (SC 2024): reward and cost beside synchronous learners",
    plan=plan,
    find=find,
    seeds=5,
)
