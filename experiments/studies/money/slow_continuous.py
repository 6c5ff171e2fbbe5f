"""SAC and CrossQ beside PPO where a step takes 24 ms: steps, minutes and dollars to a return.

The steps are those of real runs in HalfCheetah-v4, which is fast. Their rounds are projected to
every place as if a step took 24 ms, with durations that were calibrated in CPU time.
"""

import math
from collections.abc import Mapping, Sequence

from experiments.experiment import Done, Experiment
from experiments.grid import Body, Grid, Scale
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table
from experiments.reporting.statistics import FEWEST_RUNS
from experiments.repricing import Estimate, censored_median
from experiments.studies.money.calibration import STANDARD, durations
from experiments.studies.money.slow_simulators import steps_to
from nitro.planning.measuring import CHECKPOINT_S
from nitro.planning.prices import learners
from nitro.planning.ways import Learner, Way, one_server, serverless, this_machine
from nitro.planning.workload import Workload
from nitro.spec.train_spec import train_spec
from shared.contracts.job_spec import JobSpec
from shared.deployment.config import NitroConfig
from shared.hyperparameters.presets import resolve
from shared.hyperparameters.replay import ReplayHyperparameters

ENV_ID = "HalfCheetah-v4"
TARGET = 1500.0
STEP_S = 0.024
STEPS: Mapping[str, int] = {"ppo": 600_000, "sac": 100_000, "crossq": 60_000}
"""Most environment steps by algorithm."""
CALIBRATED: Mapping[str, str] = {"ppo": STANDARD, "sac": "sac", "crossq": "crossq"}
"""Conditions of the calibration."""
ACTORS = (2, 4, 16, 64)
SERVER = "c7i.4xlarge"
_CORES_HERE = 2
_EVALUATED_STEPS = 2048
"""Environment steps between evaluations."""
_TOO_FEW = "not decided: too few runs"
_CLAIM = "{algorithm} needs fewer {unit} than PPO at 24 ms a step (not the paper's)"


def plan(scale: Scale, _done: Done) -> Grid:
    """One job for each algorithm and seed."""
    grid = Grid()
    for seed in range(scale.seeds):
        for algorithm, steps in STEPS.items():
            body = _trained(algorithm, scale.of(steps, _EVALUATED_STEPS))
            grid.add_job(algorithm, ENV_ID, seed, body)
    return grid


def _trained(algorithm: str, total_steps: int) -> Body:
    """Return the fields of the job that `nitro train` makes, with more evaluations."""
    options = {"env_id": ENV_ID, "algorithm": algorithm, "learner": "cpu", "warm": "reuse"}
    spec = train_spec(options=options, total_steps=total_steps, here=True)
    made: Body = spec.model_dump(mode="json", exclude={"env_id", "seed", "detector"})
    every = max(1, _EVALUATED_STEPS // _samples(spec))
    stop = {**spec.stop.model_dump(mode="json"), "target_return": TARGET}
    return {**made, "evaluation": {"every_rounds": every, "episodes": 5}, "stop": stop}


def _samples(spec: JobSpec) -> int:
    return spec.actors.max * spec.steps_of(spec.actors.max)


def workload(algorithm: str, *, steps: int) -> Workload:
    """Return so many steps of an algorithm's job, whose environment takes 24 ms a step.

    Evaluations are left out: they only find the step at which the return was reached.
    """
    spec = JobSpec.model_validate({"env_id": ENV_ID, **_trained(algorithm, steps)})
    known = durations(ENV_ID, CALIBRATED[algorithm])
    samples = _samples(spec)
    made = known.workload(
        ENV_ID,
        total_steps=steps,
        samples_per_round=samples,
        evaluate_every=0,
        evaluation_episodes=1,
        episode_steps=1000,
    )
    changed: dict[str, object] = {"step_s": STEP_S, "open_rounds": spec.open_rounds}
    rule = resolve(algorithm, spec.preset, spec.hyperparameters)
    if isinstance(rule, ReplayHyperparameters):
        # On one core: a second one does not help.
        changed["update_s"] = samples * known.gradient_step_s + CHECKPOINT_S
        changed["warm_up_steps"] = rule.learning_starts
    return made.model_copy(update=changed)


def places(job: Workload, learner: Learner) -> dict[str, Way]:
    """Return what a job takes in every place."""
    found = {
        f"a machine of {_CORES_HERE} cores": this_machine(
            job, learner.basis, cores=_CORES_HERE, num_actors=8
        ),
        "one server, 16 cores": one_server(job, learner.basis, SERVER),
    }
    for num_actors in ACTORS:
        found[f"serverless, {num_actors} actors"] = serverless(job, learner, num_actors)
    return found


def find(_scale: Scale, done: Done) -> Findings:
    """Steps to the return, then minutes and dollars of every place."""
    learner = learners(NitroConfig())[0]
    made = {name: found for name in STEPS if (found := runs(done, name, ENV_ID))}
    steps = {name: [steps_to(run, TARGET) for run in found] for name, found in made.items()}
    reached = {
        name: [
            None if each is None else places(workload(name, steps=each), learner)
            for each in of_runs
        ]
        for name, of_runs in steps.items()
    }
    names = list(places(workload("sac", steps=_EVALUATED_STEPS), learner))
    minutes = {name: _medians(names, of_runs, usd=False) for name, of_runs in reached.items()}
    usd = {name: _medians(names, of_runs, usd=True) for name, of_runs in reached.items()}
    needed = {name: censored_median([*map(_or_never, each)]) for name, each in steps.items()}
    return Findings(
        panels=(_panel("minutes", names, minutes), _panel("USD", names, usd)),
        tables=(
            Table(
                title=f"Steps to a return of {TARGET:,g}",
                columns=("algorithm", "steps: median", *_seeds(made)),
                rows=tuple(
                    (name, str(needed[name]), *("never" if s is None else f"{s:,}" for s in each))
                    for name, each in steps.items()
                ),
            ),
            _table("Minutes", names, minutes),
            _table("USD", names, usd),
        ),
        claims=tuple(_claims(made, needed, minutes, usd)),
        notes=(
            "Medians over runs with 95 % bootstrap intervals; `never`: a run did not have the "
            "return within its steps.",
            "The steps are those of HalfCheetah-v4. Every place is projected with 24 ms of one "
            "core a step. Evaluations are left out. Start of the learner and boot of the server "
            "are in.",
            "A gradient step of SAC takes "
            f"{_told_ms('sac')} of one core, of CrossQ {_told_ms('crossq')}, as the experiment "
            "`calibration` measured in CPU time.",
        ),
    )


def _or_never(steps: int | None) -> float:
    return math.inf if steps is None else float(steps)


def _told_ms(algorithm: str) -> str:
    return f"{1e3 * durations(ENV_ID, CALIBRATED[algorithm]).gradient_step_s:.3g} ms"


def _seeds(made: Mapping[str, Sequence[JobOutcome]]) -> tuple[str, ...]:
    return tuple(f"seed {seed}" for seed in range(max(map(len, made.values()), default=0)))


def _medians(
    names: Sequence[str], of_runs: Sequence[Mapping[str, Way] | None], *, usd: bool
) -> list[Estimate]:
    """Return each place's median minutes, or dollars."""

    def value(found: Mapping[str, Way] | None, name: str) -> float:
        if found is None:
            return math.inf
        return found[name].usd if usd else found[name].wall_s / 60.0

    return [censored_median([value(found, name) for found in of_runs]) for name in names]


def _table(title: str, names: Sequence[str], made: Mapping[str, Sequence[Estimate]]) -> Table:
    rows = tuple((name, *(str(each[i]) for each in made.values())) for i, name in enumerate(names))
    return Table(title=f"{title} to the return", columns=("place", *made), rows=rows)


def _panel(unit: str, names: Sequence[str], made: Mapping[str, Sequence[Estimate]]) -> Panel:
    """Points of the places, for algorithms of which most runs had the return."""
    had = {name: each for name, each in made.items() if all(math.isfinite(e.high) for e in each)}
    return Panel(
        title=f"{unit} to a return of {TARGET:,g}",
        x_label="",
        y_label=f"{unit} (projected)",
        kind="point",
        categories=tuple(names),
        series=tuple(Series.of(name, range(len(names)), each) for name, each in had.items()),
    )


def _claims(
    made: Mapping[str, Sequence[JobOutcome]],
    needed: Mapping[str, Estimate],
    minutes: Mapping[str, Sequence[Estimate]],
    usd: Mapping[str, Sequence[Estimate]],
) -> list[Claim]:
    """Whether the others are ahead of PPO: in steps, and in each algorithm's best place."""
    best = {name: min(each, key=_value) for name, each in minutes.items()}
    least = {name: min(each[1:], key=_value) for name, each in usd.items()}
    enough = min(map(len, made.values()), default=0) >= FEWEST_RUNS
    compared = (("steps", needed), ("minutes", best), ("dollars", least))
    return [
        Claim(
            paper=_CLAIM.format(algorithm={"sac": "SAC", "crossq": "CrossQ"}[name], unit=unit),
            ours=f"{values[name]} against {values['ppo']}",
            verdict=values[name].less_than(values["ppo"]) if enough else _TOO_FEW,
        )
        for name in made
        if name != "ppo" and "ppo" in made
        for unit, values in compared
    ]


def _value(each: Estimate) -> float:
    return each.value


EXPERIMENT = Experiment(
    name="slow_continuous",
    title="SAC where a step takes 24 ms",
    paper="none",
    plan=plan,
    find=find,
    seeds=4,
)
