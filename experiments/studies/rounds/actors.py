"""The marginal value of actors: boosting can only pay where more actors pay."""

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, Grid, Scale, first, fixed, job_body
from experiments.reporting.comparison import WARM_NOTE, compared, final_return, fixed_alone, runs
from experiments.reporting.findings import Claim, Findings
from experiments.reporting.statistics import verdict

_COUNTS = (8, 16, 32, 64)
_ENVIRONMENTS = (HOPPER, "Walker2d-v4")
_PRESETS = ("paper", "standard")
_CLAIM = "More actors in a round give a higher reward (section 2.2)"


def _name(preset: str, count: int) -> str:
    return f"{preset} {count}"


def plan(scale: Scale, _done: Done) -> Grid:
    """Fixed counts in each preset."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id in first(scale, _ENVIRONMENTS):
            for preset in _PRESETS:
                for count in scale.of(_COUNTS, (2, 4)):
                    body = job_body(scale, env_id, preset=preset)
                    condition = _name(preset, count)
                    grid.add_job(condition, env_id, seed, {**body, "scaling": fixed(count)})
    return grid


def find(scale: Scale, made: Done) -> Findings:
    """The return of the most actors beside that of the fewest."""
    done = fixed_alone(made, {key.condition for key in made}, scale=scale)
    panels, tables = compared(done, actors=False)
    fewest, *_, most = scale.of(_COUNTS, (2, 4))
    claims = []
    for env_id in first(scale, _ENVIRONMENTS):
        for preset in _PRESETS:
            few, many = _name(preset, fewest), _name(preset, most)
            if not runs(done, few, env_id):
                continue
            low, high = final_return(done, few, env_id), final_return(done, many, env_id)
            text = f"{env_id}, {preset}: {fewest} actors {low}, {most} actors {high}"
            claims.append(Claim(paper=_CLAIM, ours=text, verdict=verdict(high, low)))
    return Findings(panels=panels, tables=tables, claims=tuple(claims), notes=(WARM_NOTE,))


EXPERIMENT = Experiment(
    name="actors",
    title="The marginal value of actors",
    paper="section 2.2 (its premise)",
    plan=plan,
    find=find,
)
