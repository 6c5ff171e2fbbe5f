"""Time and dollars to a return on a slow simulator: here, on a server, serverless.

The learning is run: rounds of equal samples, shared by actors whose episodes go on. How many share
them changes a round's time and not its samples. So one run a seed is projected, with its own
measured times, to every place, up to the steps at which its evaluation first had the return.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.experiment import Done, Experiment
from experiments.grid import Body, Grid, Scale, fixed
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import FEWEST_RUNS
from experiments.repricing import Estimate, censored_median
from experiments.workloads import workload_of
from nitro.planning.prices import learners
from nitro.planning.ways import Learner, Way, one_server, serverless, this_machine
from shared.contracts.job_spec import JobSpec
from shared.deployment.config import NitroConfig
from shared.environments.packages import EnvironmentPackageError, import_environment_packages

ENV_ID = "Driving/HighwayFast-v0"
PACKAGE = "driving"
CONDITION = "rounds of equal samples"
TARGET = 24.0
"""Of 30: keeping right and slow brings 22."""
ACTORS = (16, 64, 256, 1000)
SERVER = "c7i.4xlarge"
_EXAMPLE = Path(__file__).parents[2] / "examples" / "highway_env"
_EPISODE_STEPS = 30
_ACTORS_HERE = 16
_SAMPLES = 2048
_ROUNDS = 20
_TIMES_FASTER, _TIMES_DEARER = 10.0, 3.0
"""What is hoped for."""
_HOPE = "Serverless is ten times as fast as a server of 16 cores at three times its dollars (ours)"
_TOO_FEW = "not decided: too few runs"


def plan(scale: Scale, _done: Done) -> Grid:
    """One job a seed."""
    grid = Grid()
    reason = _why_not_registered()
    if reason is not None:
        grid.left_out[ENV_ID] = reason
        return grid
    for seed in range(scale.seeds):
        grid.add_job(CONDITION, ENV_ID, seed, _body(scale))
    return grid


def _why_not_registered() -> str | None:
    """Import the example's package, which lies in the source tree; say why that cannot be."""
    if str(_EXAMPLE) not in sys.path:
        sys.path.append(str(_EXAMPLE))
    try:
        import_environment_packages([PACKAGE])
    except EnvironmentPackageError as error:
        return str(error)
    return None


def _body(scale: Scale) -> Body:
    actors = scale.of(_ACTORS_HERE, 2)
    return {
        "preset": "standard",
        "samples_per_round": scale.of(_SAMPLES, 64),
        "scaling": fixed(actors),
        "actors": {"min": actors, "max": actors},
        "hyperparameters": {"learning_rate": 5e-4, "discount": 0.8, "hidden_sizes": [256, 256]},
        "evaluation": {"every_rounds": 2, "episodes": scale.of(10, 1)},
        "stop": {"max_rounds": scale.of(_ROUNDS, 4), "budget_usd": 1e6},
    }


def places(spec: JobSpec, run: JobOutcome, steps: int, learner: Learner) -> dict[str, Way]:
    """Return what so many steps of a run take in every place."""
    job = workload_of(spec, run, episode_steps=_EPISODE_STEPS, total_steps=steps)
    here = this_machine(
        job, learner.basis, cores=run.environment.num_cpus, num_actors=run.rounds[0].num_actors
    )
    found = {
        f"this machine, {run.environment.num_cpus} cores": here,
        "one server, 16 cores": one_server(job, learner.basis, SERVER),
    }
    for num_actors in ACTORS:
        if job.steps_of(num_actors):
            found[f"serverless, {num_actors:,} actors"] = serverless(job, learner, num_actors)
    return found


def steps_to(run: JobOutcome, target: float) -> int | None:
    """Return the steps after which an evaluation first had a return; None if none had it."""
    reached = (e.env_steps for e in run.evaluations if e.updates and e.mean_return >= target)
    return next(reached, None)


def find(scale: Scale, done: Done) -> Findings:
    """Minutes and dollars of every place, to the return and for the whole run."""
    made: Sequence[JobOutcome] = runs(done, CONDITION, ENV_ID)
    spec = JobSpec.model_validate({"env_id": ENV_ID, **_body(scale)})
    learner = learners(NitroConfig())[0]
    whole = [places(spec, run, run.env_steps, learner) for run in made]
    reached = [
        {} if steps is None else places(spec, run, steps, learner)
        for run, steps in ((run, steps_to(run, TARGET)) for run in made)
    ]
    names = list(whole[0]) if whole else []
    tables = (
        _table(f"To a return of {TARGET:g}", names, reached),
        _table(f"All {made[0].env_steps:,} steps" if made else "All steps", names, whole),
        Table(
            title="The runs",
            columns=("seed", "steps to the return", "final return", "ms a step", "ms an update"),
            rows=tuple(_run_row(k, spec, run) for k, run in enumerate(made)),
        ),
    )
    return Findings(
        panels=(_panel("minutes", names, whole), _panel("USD", names, whole)),
        tables=tables,
        claims=(claim(names, reached),) if names else (),
        notes=(
            "Medians over runs with 95 % bootstrap intervals; `never`: most runs did not have the "
            "return within their steps.",
            "The learning and its times are measured here; every place is projected from them, "
            "this machine, too. Start of the learner and boot of the server are in.",
            f"The learner has no GPU. Evaluation episodes have {_EPISODE_STEPS} steps each.",
        ),
    )


def _run_row(seed: int, spec: JobSpec, run: JobOutcome) -> tuple[Value, ...]:
    job = workload_of(spec, run, episode_steps=_EPISODE_STEPS)
    steps = steps_to(run, TARGET)
    told = None if steps is None else f"{steps:,}"
    times = (f"{1e3 * job.step_s:.3g}", f"{1e3 * job.update_s:.3g}")
    return (seed, told, f"{run.final_return:.3g}", *times)


def _median(name: str, made: Sequence[Mapping[str, Way]], *, usd: bool) -> Estimate:
    ways = [found.get(name) for found in made]
    return censored_median(
        [math.inf if way is None else way.usd if usd else way.wall_s / 60.0 for way in ways]
    )


def _table(title: str, names: Sequence[str], made: Sequence[Mapping[str, Way]]) -> Table:
    rows = tuple(
        (name, str(_median(name, made, usd=False)), str(_median(name, made, usd=True)))
        for name in names
    )
    return Table(title=title, columns=("place", "minutes", "USD"), rows=rows)


def _panel(unit: str, names: Sequence[str], made: Sequence[Mapping[str, Way]]) -> Panel:
    found = [_median(name, made, usd=unit == "USD") for name in names]
    return Panel(
        title=f"{ENV_ID}: {unit}",
        x_label="",
        y_label=f"{unit} (projected)",
        kind="bar",
        categories=tuple(names),
        series=(
            Series(
                label="all steps",
                x=tuple(map(float, range(len(names)))),
                y=tuple(each.value for each in found),
                low=tuple(each.low for each in found),
                high=tuple(each.high for each in found),
            ),
        ),
    )


def claim(names: Sequence[str], made: Sequence[Mapping[str, Way]]) -> Claim:
    """Whether any number of actors gains over the server what was hoped for.

    Args:
        names: Of the places: this machine, the server, numbers of actors.
        made: What each run takes in them to the return; empty for one that never had it.
    """
    reached = [found for found in made if found]
    text = f"{len(reached)} of {len(made)} runs had the return"
    if not reached:
        return Claim(paper=_HOPE, ours=text, verdict=_TOO_FEW)
    gains = {name: _gain(name, names[1], reached) for name in names[2:]}
    held = [name for name, gain in gains.items() if gain.holds]
    best = max(held or gains, key=lambda name: gains[name].reaches)
    if len(reached) < FEWEST_RUNS:
        verdict = _TOO_FEW
    elif held:
        verdict = "holds (projected)"
    elif all(gain.fails for gain in gains.values()):
        verdict = "does not hold"
    else:
        verdict = "not decided: an interval has what is hoped for in it"
    faster, dearer = gains[best].faster, gains[best].dearer
    told = f"{text}. {best}: {faster} times as fast at {dearer} times the dollars, up to there"
    return Claim(paper=_HOPE, ours=told, verdict=verdict)


@dataclass(frozen=True, slots=True)
class _Gain:
    """Medians of a place's time and dollars against the server's, run by run."""

    faster: Estimate
    dearer: Estimate

    @property
    def holds(self) -> bool:
        return self.faster.low >= _TIMES_FASTER and self.dearer.high <= _TIMES_DEARER

    @property
    def fails(self) -> bool:
        return self.faster.high < _TIMES_FASTER or self.dearer.low > _TIMES_DEARER

    @property
    def reaches(self) -> float:
        """Part of the hope that comes true; at least 1 where all does."""
        return min(self.faster.value / _TIMES_FASTER, _TIMES_DEARER / self.dearer.value)


def _gain(name: str, server: str, reached: Sequence[Mapping[str, Way]]) -> _Gain:
    return _Gain(
        faster=censored_median([found[server].wall_s / found[name].wall_s for found in reached]),
        dearer=censored_median([found[name].usd / found[server].usd for found in reached]),
    )


EXPERIMENT = Experiment(
    name="slow_simulators",
    title="A slow simulator",
    paper="none: the paper's simulators take a tenth of a millisecond a step",
    plan=plan,
    find=find,
    seeds=5,
    alone=True,
    environment_packages=(PACKAGE,),
)
