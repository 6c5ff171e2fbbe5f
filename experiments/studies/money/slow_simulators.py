"""Time and dollars to a return on a slow simulator: here, on a server, serverless.

The learning is run: rounds of equal samples, shared by actors whose episodes go on, until an
evaluation has the return. How many actors share them changes a round's time and not its samples. So
one run a seed is projected to every place, with durations that were calibrated in CPU time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.example_packages import HIGHWAY, HIGHWAY_PACKAGE, highway_problem
from experiments.experiment import Done, Experiment
from experiments.grid import Body, Grid, Scale, fixed
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import FEWEST_RUNS
from experiments.repricing import Estimate, censored_median
from experiments.studies.money.calibration import HIGHWAY_HYPERPARAMETERS, STANDARD, durations
from nitro.planning.prices import learners
from nitro.planning.ways import Learner, Way, one_server, serverless, this_machine
from nitro.planning.workload import Workload
from shared.contracts.job_spec import JobSpec
from shared.deployment.config import NitroConfig

ENV_ID = HIGHWAY
CONDITION = "rounds of equal samples"
TARGET = 24.0
"""Of 30: keeping right and slow brings 22."""
ACTORS = (16, 64, 256, 1000)
SERVER = "c7i.4xlarge"
_EPISODE_STEPS = 30
_ACTORS_HERE = 16
_CORES_HERE = 2
_SAMPLES = 2048
_ROUNDS = 20
_TIMES_FASTER, _TIMES_DEARER = 10.0, 3.0
"""The targets."""
_HOPE = "Serverless is ten times as fast as a server of 16 cores at three times its dollars (ours)"
_TOO_FEW = "not decided: too few runs"


def plan(scale: Scale, _done: Done) -> Grid:
    """One job a seed."""
    grid = Grid()
    reason = highway_problem()
    if reason is not None:
        grid.left_out[ENV_ID] = reason
        return grid
    for seed in range(scale.seeds):
        grid.add_job(CONDITION, ENV_ID, seed, _body(scale))
    return grid


def _body(scale: Scale) -> Body:
    actors = scale.of(_ACTORS_HERE, 2)
    return {
        "preset": "standard",
        "samples_per_round": scale.of(_SAMPLES, 64),
        "scaling": fixed(actors),
        "actors": {"min": actors, "max": actors},
        "hyperparameters": HIGHWAY_HYPERPARAMETERS,
        "evaluation": {"every_rounds": 2, "episodes": scale.of(10, 1)},
        "stop": {
            "max_rounds": scale.of(_ROUNDS, 4),
            "target_return": TARGET,
            "budget_usd": 1e6,
        },
    }


def workload(spec: JobSpec, *, steps: int) -> Workload:
    """Return so many steps of the job, as calibrated."""
    return durations(ENV_ID, STANDARD).workload(
        ENV_ID,
        total_steps=steps,
        samples_per_round=spec.actors.max * spec.steps_of(spec.actors.max),
        evaluate_every=spec.evaluation.every_rounds,
        evaluation_episodes=spec.evaluation.episodes,
        episode_steps=_EPISODE_STEPS,
    )


def places(spec: JobSpec, learner: Learner, *, steps: int) -> dict[str, Way]:
    """Return what so many steps of the job take in every place."""
    job = workload(spec, steps=steps)
    found = {
        f"a machine of {_CORES_HERE} cores": this_machine(
            job, learner.basis, cores=_CORES_HERE, num_actors=_ACTORS_HERE
        ),
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
    """Minutes and dollars of every place, to the return and for as many steps as a run may have."""
    made: Sequence[JobOutcome] = runs(done, CONDITION, ENV_ID)
    spec = JobSpec.model_validate({"env_id": ENV_ID, **_body(scale)})
    learner = learners(NitroConfig())[0]
    most = spec.stop.max_rounds * spec.actors.max * spec.steps_of(spec.actors.max)
    whole = places(spec, learner, steps=most)
    reached = [
        {} if steps is None else places(spec, learner, steps=steps)
        for steps in (steps_to(run, TARGET) for run in made)
    ]
    known = durations(ENV_ID, STANDARD)
    tables = (
        _table(f"To a return of {TARGET:g}", list(whole), reached),
        _table(f"All {most:,} steps", list(whole), [whole]),
        Table(
            title="The runs",
            columns=("seed", "steps to the return", "best return"),
            rows=tuple(_run_row(seed, run) for seed, run in enumerate(made)),
        ),
    )
    return Findings(
        panels=(
            _panel("minutes", list(whole), reached),
            _panel("USD", list(whole), reached),
        ),
        tables=tables,
        claims=(
            *((claim(list(whole), reached),) if made else ()),
            whole_claim(list(whole), whole, steps=most),
        ),
        notes=(
            "Medians over runs with 95 % bootstrap intervals; `never`: most runs did not have the "
            "return within their steps.",
            f"The learning is run here. Every place is projected: a step takes "
            f"{1e3 * known.step_s:.3g} ms of one core, as the experiment `calibration` measured in "
            "CPU time. Start of the learner and boot of the server are in.",
            f"The learner has no GPU. An evaluation episode counts {_EPISODE_STEPS} steps.",
        ),
    )


def _run_row(seed: int, run: JobOutcome) -> tuple[Value, ...]:
    steps = steps_to(run, TARGET)
    best = max(each.mean_return for each in run.evaluations)
    return (seed, None if steps is None else f"{steps:,}", f"{best:.3g}")


def _median(name: str, made: Sequence[Mapping[str, Way]], *, usd: bool) -> Estimate:
    ways = [found.get(name) for found in made]
    return censored_median(
        [math.inf if way is None else way.usd if usd else way.wall_s / 60.0 for way in ways]
    )


def _table(title: str, names: Sequence[str], made: Sequence[Mapping[str, Way]]) -> Table:
    made = made or [{}]
    rows = tuple(
        (name, str(_median(name, made, usd=False)), str(_median(name, made, usd=True)))
        for name in names
    )
    return Table(title=title, columns=("place", "minutes", "USD"), rows=rows)


def _panel(unit: str, names: Sequence[str], made: Sequence[Mapping[str, Way]]) -> Panel:
    """Bars of the places, over the runs that had the return."""
    had = [found for found in made if found]
    found = [_median(name, had, usd=unit == "USD") for name in names] if had else []
    return Panel(
        title=f"{ENV_ID}: {unit} to a return of {TARGET:g}",
        x_label="",
        y_label=f"{unit} (projected)",
        kind="bar",
        categories=tuple(names),
        series=(Series.of(f"{len(had)} runs that had it", range(len(found)), found),),
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


def whole_claim(names: Sequence[str], whole: Mapping[str, Way], *, steps: int) -> Claim:
    """Whether that is so for all the steps of a run, which is a projection without any chance."""
    gains = {name: _gain(name, names[1], [whole]) for name in names[2:]}
    best = max(gains, key=lambda name: gains[name].reaches)
    told = f"{best}: {gains[best].faster} times as fast at {gains[best].dearer} times the dollars"
    return Claim(
        paper=_HOPE,
        ours=f"{told}, for all {steps:,} steps",
        verdict="holds (projected)" if gains[best].holds else "does not hold (projected)",
    )


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
    environment_packages=(HIGHWAY_PACKAGE,),
)
