"""How long the parts of a round take on one core: what experiments about money multiply by.

The actor's own rollout and the learner's own algorithm are run in this process, as `nitro plan`
does, and timed in CPU time. So the machine may be busy. Each seed is one repetition.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.environment import describe_environment
from experiments.durations import RESULTS, Durations, split
from experiments.example_packages import HIGHWAY, highway_problem
from experiments.experiment import Done, Experiment
from experiments.grid import Body, Cell, Grid, Scale
from experiments.reporting.findings import Findings, Panel, Series, Table, Value
from experiments.store import Store
from learning.cpu.torch_settings import configure_torch
from nitro.errors import CommandError
from nitro.planning.measuring import learner_s, queued, sample
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.ppo import PpoHyperparameters

ENVIRONMENTS = ("Hopper-v4", "HalfCheetah-v4", "Walker2d-v4", "Humanoid-v4")
HIGHWAY_HYPERPARAMETERS: Body = {"learning_rate": 5e-4, "discount": 0.8, "hidden_sizes": [256, 256]}
STANDARD, PAPER = "standard", "paper"
"""Conditions: presets, the first one also with larger minibatches."""
LARGER_MINIBATCHES = (128, 256)
REPLAYS = ("sac", "crossq")
"""Conditions: algorithms with a gradient step for each environment step."""


def minibatches_of(minibatch_size: int) -> str:
    """Return the condition in which minibatches are larger."""
    return f"standard, minibatches of {minibatch_size}"


_FEW, _MANY = 512, 4096
"""Samples of the updates that are timed."""
_ACTORS, _STEPS = 16, 256
_SHOWN_STEPS = 2048
_SHOWN = {
    "step_s": "step",
    "reset_s": "reset",
    "call_s": "call",
    "update_fixed_s": "update, fixed",
    "gradient_step_s": "gradient step",
    "measuring_s": "curvature",
}
_MEASURED = (*_SHOWN, "bytes_per_sample")


def plan(scale: Scale, _done: Done) -> Grid:
    """One cell a preset and environment, measured once a seed."""
    grid = Grid()
    problem = highway_problem()
    if problem is not None:
        grid.left_out[HIGHWAY] = problem
    for seed in range(scale.seeds):
        for env_id in ENVIRONMENTS:
            for preset in (STANDARD, PAPER):
                grid.add_job(preset, env_id, seed, _body(preset))
            for size in LARGER_MINIBATCHES:
                larger: Body = {"hyperparameters": {"minibatch_size": size}}
                body = {**_body(STANDARD), **larger}
                grid.add_job(minibatches_of(size), env_id, seed, body)
        for algorithm in REPLAYS:
            grid.add_job(
                algorithm, "HalfCheetah-v4", seed, {**_body(STANDARD), "algorithm": algorithm}
            )
        if problem is None:
            body = {**_body(STANDARD), "hyperparameters": HIGHWAY_HYPERPARAMETERS}
            grid.add_job(STANDARD, HIGHWAY, seed, body)
    return grid


def _body(preset: str) -> Body:
    return {
        "preset": preset,
        "steps_per_actor": _STEPS,
        "actors": {"min": _ACTORS, "max": _ACTORS},
        "scaling": {"policy": "fixed", "num_actors": _ACTORS},
        "stop": {"max_rounds": 1, "budget_usd": 1e6},
    }


def calibrate(cell: Cell) -> Durations:
    """Measure one cell's durations, in some ten seconds of one core."""
    spec = cell.task
    assert isinstance(spec, JobSpec)
    configure_torch()
    job = queued(spec)
    hyperparameters = job.hyperparameters
    num_epochs, minibatch_size = 1, 1
    if isinstance(hyperparameters, PpoHyperparameters):
        num_epochs, minibatch_size = hyperparameters.num_epochs, hyperparameters.minibatch_size
    sampled = sample(job, clock=time.process_time)
    updates, measuring_s = [], 0.0
    for samples in (_FEW, _MANY):
        update_s, measuring_s = learner_s(
            job, sampled.trajectories, samples, clock=time.process_time
        )
        updates.append((samples, update_s))
    if isinstance(hyperparameters, PpoHyperparameters):
        fixed_s, step_s = split(*updates, num_epochs=num_epochs, minibatch_size=minibatch_size)
    else:
        fixed_s, step_s = 0.0, updates[-1][1] / _MANY
    return Durations(
        step_s=sampled.step_s,
        reset_s=sampled.reset_s,
        call_s=sampled.call_s,
        update_fixed_s=fixed_s,
        gradient_step_s=step_s,
        measuring_s=measuring_s,
        num_epochs=num_epochs,
        minibatch_size=minibatch_size,
        bytes_per_sample=sampled.bytes_per_sample,
        environment=describe_environment(),
    )


@functools.cache
def durations(env_id: str, condition: str) -> Durations:
    """Return the medians of what was calibrated for the recorded runs.

    Raises:
        CommandError: Nothing was.
    """
    store = Store(RESULTS, EXPERIMENT, quick=False)
    cells = plan(Scale(seeds=EXPERIMENT.seeds, quick=False), {}).cells
    wanted = [cell for cell in cells if cell.id[:2] == (condition, env_id)]
    found = [made for made in map(store.read, wanted) if isinstance(made, Durations)]
    if not found:
        raise CommandError(
            f"{env_id}, {condition}: nothing is calibrated; run: `nitro experiment run calibration`"
        )
    return medians(found)


def medians(found: Sequence[Durations]) -> Durations:
    """Return the medians of repetitions, one by one."""
    return found[0].model_copy(
        update={name: median(getattr(each, name) for each in found) for name in _MEASURED}
    )


def find(_scale: Scale, done: Done) -> Findings:
    """Every duration, its least and its most of the repetitions."""
    by_condition: dict[tuple[str, str], list[Durations]] = {}
    for (preset, env_id, _), made in done.items():
        by_condition.setdefault((env_id, preset), []).append(made)
    rows = tuple(
        (env_id, preset, *(_told([getattr(each, name) for each in found]) for name in _SHOWN))
        for (env_id, preset), found in by_condition.items()
    )
    table = Table(
        title="Milliseconds of one core: median, least and most of the repetitions",
        columns=("environment", "preset", *_SHOWN.values()),
        rows=rows,
    )
    notes = (
        "CPU time of one process with one thread: it does not grow where others have the cores. "
        "What they take of its caches, and of a core's other thread, is in it.",
        "SAC and CrossQ have a gradient step for each sample, no fixed part and no curvature.",
        f"Updates of {_FEW} and {_MANY:,} samples were timed, and split into a fixed part and "
        "gradient steps. The policy has not learned yet.",
    )
    panels = (_panel(by_condition),) if by_condition else ()
    return Findings(panels=panels, tables=(table,), claims=(), notes=notes)


def _panel(by_condition: Mapping[tuple[str, str], Sequence[Durations]]) -> Panel:
    """Bars of what an actor and a learner take for 2,048 steps, preset `standard`."""
    made = {env: medians(found) for (env, name), found in by_condition.items() if name == STANDARD}
    places = tuple(map(float, range(len(made))))
    of_actors = tuple(_SHOWN_STEPS * each.step_s for each in made.values())
    of_learner = tuple(
        each.learner_s(each.gradient_steps(_SHOWN_STEPS), "cpu") for each in made.values()
    )
    return Panel(
        title=f"Seconds of one core for {_SHOWN_STEPS:,} steps, preset standard",
        x_label="",
        y_label="s",
        kind="bar",
        categories=tuple(made),
        series=(
            Series(label="actors' steps", x=places, y=of_actors),
            Series(label="learner, two cores", x=places, y=of_learner),
        ),
    )


def _told(seconds: Sequence[float]) -> Value:
    middle, low, high = (1e3 * each for each in (median(seconds), min(seconds), max(seconds)))
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


EXPERIMENT = Experiment(
    name="calibration",
    title="How long the parts of a round take",
    paper="none",
    plan=plan,
    find=find,
    seeds=3,
    outcome=Durations,
    work=calibrate,
)
