"""Sensitivity of a learner made of functions to the decay d, the limit rho and the root v."""

from experiments.experiment import Done, Experiment
from experiments.functions import account_table, body
from experiments.grid import HOPPER, Body, Grid, Scale
from experiments.reporting.comparison import compared, runs
from experiments.reporting.findings import Findings

_DEFAULTS = "defaults"
_CHANGES: dict[str, Body] = {
    _DEFAULTS: {},
    **{f"decay {d:g}": {"decay": d} for d in (0.8, 0.95, 0.96, 1.0)},
    **{f"rho {r:g}": {"rho": r} for r in (0.8, 1.5, 2.0)},
    **{f"v {v:g}": {"v": v} for v in (1.0, 2.0, 5.0)},
}


def plan(scale: Scale, _done: Done) -> Grid:
    """One change at a time."""
    grid = Grid()
    for seed in range(scale.seeds):
        for name, change in scale.of(list(_CHANGES.items()), list(_CHANGES.items())[:2]):
            grid.add_job(name, HOPPER, seed, body(scale, HOPPER, functions=change))
    return grid


def find(_scale: Scale, done: Done) -> Findings:
    """Returns of all."""
    panels, tables = compared(done, actors=False)
    groups = {name: found for name in _CHANGES if (found := runs(done, name, HOPPER))}
    return Findings(
        panels=panels, tables=(*tables, account_table("Gradients of functions", groups)), claims=()
    )


EXPERIMENT = Experiment(
    name="stellaris_sensitivity",
    title="Decay, limit and root of a learner made of functions",
    paper="Stellaris (SC 2024): sensitivity",
    plan=plan,
    find=find,
    seeds=5,
)
