"""Scaling policies compared (Figure 15): does boosting at the detected rounds pay?

Beside the paper's baselines stand two that isolate the detector: `fixed at Nitro's mean` spends
what Nitro's run of the same seed spent, evenly; `random` puts a uniform score in the place of the
detected one, with the same decay and bounds. MinionsRL needs an agent trained beforehand; it is
left out here, `nitro scheduler train` makes one.
"""

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, Body, CellId, Grid, Scale, first, fixed, job_body
from experiments.reporting.comparison import (
    WARM_NOTE,
    cheaper,
    compared,
    fixed_alone,
    higher_return,
)
from experiments.reporting.findings import Findings
from shared.hyperparameters.presets import Preset

ENVIRONMENTS = (HOPPER, "Walker2d-v4")
NITRO, FIXED, MEAN = "nitro", "fixed 16", "fixed at Nitro's mean"
_POLICIES: dict[str, Body] = {
    NITRO: {"policy": "nitro"},
    "random": {"policy": "random"},
    "hydrozoa": {"policy": "hydrozoa"},
    "kungfu": {"policy": "kungfu"},
}
_REWARD = "Nitro reaches a higher reward than KungFu, Hydrozoa and MinionsRL"
_BETTER = "Nitro trains better than 16 actors throughout"
_COST = "Nitro costs the least of the schemes"
_DETECTOR = "Rounds with a low R are the ones worth boosting"


def plan(scale: Scale, done: Done, *, preset: Preset = "paper") -> Grid:
    """Every policy; the one at Nitro's mean once Nitro's run of its seed is done."""
    grid = Grid()
    policies = _POLICIES | {FIXED: fixed(scale.of(16, 4))}
    for seed in range(scale.seeds):
        for env_id in first(scale, ENVIRONMENTS):
            body = job_body(scale, env_id, preset=preset)
            for name, scaling in policies.items():
                grid.add_job(name, env_id, seed, {**body, "scaling": scaling})
            nitro = done.get(CellId(NITRO, env_id, seed))
            if nitro is not None:
                mean = fixed(round(nitro.mean_actors))
                grid.add_job(MEAN, env_id, seed, {**body, "scaling": mean})
    return grid


def find(scale: Scale, made: Done) -> Findings:
    """Returns at equal rounds and at equal dollars."""
    done = fixed_alone(made, (FIXED, MEAN), scale=scale)
    panels, tables = compared(done)
    claims = [
        *higher_return(done, NITRO, "kungfu", paper=_REWARD, equal="dollars"),
        *higher_return(done, NITRO, "hydrozoa", paper=_REWARD, equal="dollars"),
        *higher_return(done, NITRO, "random", paper=_DETECTOR, equal="dollars"),
        *higher_return(done, NITRO, MEAN, paper=_DETECTOR, equal="dollars"),
        *higher_return(done, NITRO, "random", paper=_DETECTOR, equal="steps"),
        *higher_return(done, NITRO, FIXED, paper=_BETTER),
        *higher_return(done, NITRO, FIXED, paper=_BETTER, equal="dollars"),
        *cheaper(done, NITRO, "kungfu", paper=_COST),
        *cheaper(done, NITRO, "hydrozoa", paper=_COST),
    ]
    notes = (
        f"`{MEAN}` is rounded to whole actors. Policies of one seed start from equal weights.",
        WARM_NOTE,
        "MinionsRL is left out: its agent has to be trained first, which the paper's cost omits.",
    )
    return Findings(panels=panels, tables=tables, claims=tuple(claims), notes=notes)


EXPERIMENT = Experiment(
    name="policies",
    title="Scaling policies compared",
    paper="Figure 15",
    plan=plan,
    find=find,
)
