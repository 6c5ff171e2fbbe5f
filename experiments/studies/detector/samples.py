"""Whether boosting pays more when the detector's ratio is less noisy.

Experiments that repeat the paper's figures measure its way, on a subset of the round spread evenly,
most of whose ratio is chance (decision 007). A job's default draws its samples in proportion to
their part of the Hessian (decision 024). Both, a uniform score and the drawn detector's mean number
of actors run side by side here, in the preset `standard`, where data is the bottleneck.
"""

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, OWN_DETECTOR, CellId, Grid, Scale, first, fixed, job_body
from experiments.reporting.comparison import WARM_NOTE, compared, fixed_alone, higher_return
from experiments.reporting.findings import Findings

_ENVIRONMENTS = (HOPPER, "Walker2d-v4")
_DRAWN, _EVEN, _RANDOM, _MEAN = "drawn", "even", "random", "fixed at the drawn one's mean"
_DETECTOR = "Rounds with a low R are the ones worth boosting"


def plan(scale: Scale, done: Done) -> Grid:
    """Both detectors, a uniform score, and the drawn one's mean once its run is done."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id in first(scale, _ENVIRONMENTS):
            body = job_body(scale, env_id, preset="standard")
            grid.add_job(_DRAWN, env_id, seed, body | {"detector": OWN_DETECTOR})
            grid.add_job(_EVEN, env_id, seed, body)
            grid.add_job(_RANDOM, env_id, seed, body | {"scaling": {"policy": "random"}})
            drawn = done.get(CellId(_DRAWN, env_id, seed))
            if drawn is not None:
                mean = fixed(round(drawn.mean_actors))
                grid.add_job(_MEAN, env_id, seed, body | {"scaling": mean})
    return grid


def find(scale: Scale, made: Done) -> Findings:
    """Returns at equal dollars and at equal steps."""
    done = fixed_alone(made, (_MEAN,), scale=scale)
    panels, tables = compared(done)
    claims = [
        claim
        for other in (_EVEN, _RANDOM, _MEAN)
        for equal in ("dollars", "steps")
        for claim in higher_return(done, _DRAWN, other, paper=_DETECTOR, equal=equal)
    ]
    notes = (
        f"`{_DRAWN}`: 256 samples drawn in proportion, as a job has them by default. `{_EVEN}`: "
        "512 spread evenly, as in the experiments that repeat figures of the paper.",
        f"`{_MEAN}` is rounded to whole actors. Policies of one seed start from equal weights.",
        WARM_NOTE,
    )
    return Findings(panels=panels, tables=tables, claims=tuple(claims), notes=notes)


EXPERIMENT = Experiment(
    name="samples",
    title="Boosting by a detector whose samples are drawn in proportion",
    paper="the claim of section 4 that boosting pays at detected rounds; not in a figure",
    plan=plan,
    find=find,
)
