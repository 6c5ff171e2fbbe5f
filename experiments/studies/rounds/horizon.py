"""Whether short actors learn: episodes that go on beside episodes that begin with every fragment.

Every round has 2,048 steps, shared by few long actors or many short ones. What differs is the
training horizon: the steps after a reset at which an episode is cut.
"""

from collections.abc import Sequence
from statistics import median

from pydantic import JsonValue

from experiments.experiment import Done, Experiment
from experiments.grid import Body, Grid, Scale, first, fixed, job_body
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import compared, final_return, runs
from experiments.reporting.findings import Claim, Findings, Table
from experiments.reporting.statistics import verdict

_ENVIRONMENTS = (
    "Walker2d-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Swimmer-v5",
    "Humanoid-v5",
    "Ant-v5",
)
_ROUNDS = 244
"""Of 2,048 steps: half a million."""
_SHAPES = ((32, 64), (8, 256), (2, 1024))
"""Actors of a round, and steps of each."""
_HORIZONS: tuple[JsonValue, ...] = ("fragment", 64, 256, "limit")
_CLAIM = "Episodes that go on let many short actors learn (not the paper's)"


def _name(actors: int, steps: int, horizon: JsonValue) -> str:
    return f"{actors} x {steps}, {horizon}"


def plan(scale: Scale, _done: Done) -> Grid:
    """Every horizon that differs from the fragment's length; many short actors first."""
    grid = Grid()
    for actors, steps in scale.of(_SHAPES, ((4, 32),)):
        for seed in range(scale.seeds):
            for env_id in first(scale, _ENVIRONMENTS):
                for horizon in scale.of(_HORIZONS, ("fragment", "limit")):
                    if horizon == steps:
                        # `fragment` stands for it. They are the same where no episode ends early;
                        # where one does, `fragment` alone has a reset with every fragment.
                        continue
                    body = job_body(
                        scale,
                        env_id,
                        rounds=_ROUNDS,
                        actors=(actors, actors),
                        evaluate_every=20,
                        preset="standard",
                    )
                    changes: Body = {
                        "steps_per_actor": steps,
                        "scaling": fixed(actors),
                        "episodes": {"horizon": horizon},
                    }
                    grid.add_job(_name(actors, steps, horizon), env_id, seed, {**body, **changes})
    return grid


def find(scale: Scale, made: Done) -> Findings:
    """The return of many short actors, with episodes that go on and without."""
    panels, tables = compared(made, actors=False)
    actors, steps = scale.of(_SHAPES, ((4, 32),))[0]
    reset, going_on = (_name(actors, steps, horizon) for horizon in ("fragment", "limit"))
    claims = []
    for env_id in first(scale, _ENVIRONMENTS):
        if not (runs(made, reset, env_id) and runs(made, going_on, env_id)):
            continue
        before, after = final_return(made, reset, env_id), final_return(made, going_on, env_id)
        text = f"{env_id}, {actors} x {steps}: {before} with a reset each, {after} going on"
        claims.append(Claim(paper=_CLAIM, ours=text, verdict=verdict(after, before)))
    return Findings(panels=panels, tables=(_medians(scale, made), *tables), claims=tuple(claims))


def _medians(scale: Scale, made: Done) -> Table:
    """Return the study in one table: a row for each environment and shape of a round."""
    horizons = scale.of(_HORIZONS, ("fragment", "limit"))
    rows = []
    for env_id in first(scale, _ENVIRONMENTS):
        for actors, steps in scale.of(_SHAPES, ((4, 32),)):
            found = [runs(made, _name(actors, steps, horizon), env_id) for horizon in horizons]
            if any(found):
                rows.append((env_id, f"{actors} x {steps}", *map(_median, found)))
    return Table(
        title="Final returns: median (smallest, largest) of the runs made",
        columns=("environment", "actors x steps", *map(str, horizons)),
        rows=tuple(rows),
    )


def _median(made: Sequence[JobOutcome]) -> str | None:
    returns = [each.final_return for each in made]
    return f"{median(returns):,.0f} ({min(returns):,.0f}, {max(returns):,.0f})" if returns else None


EXPERIMENT = Experiment(
    name="horizon",
    title="Episodes that go on",
    paper="none: every fragment of the paper's begins with a reset",
    plan=plan,
    find=find,
)
