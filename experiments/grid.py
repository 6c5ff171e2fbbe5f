"""The grid of an experiment: which conditions are trained, on which environment, with which seed.

A condition or environment this version cannot train is left out and named with the reason, found
by asking: a job's specification is built, its environment described. So a grid grows by itself
when an algorithm, a preset or an environment is added.
"""

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pydantic import JsonValue, ValidationError

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import resolve_for
from shared.contracts.message import Message
from shared.environments.describing import describe

HOPPER = "Hopper-v4"
"""Version 4 stands nearest to the paper's version 3; scores of 4 and 5 cannot be exchanged."""
MUJOCO = (HOPPER, "Humanoid-v4", "Walker2d-v4")
ATARI = ("SpaceInvadersNoFrameskip-v4", "QbertNoFrameskip-v4", "GravitarNoFrameskip-v4")
ATARI_STEPS = 16
"""Steps per actor: 16 actors of them make Table 1's batch of 256."""
ACTORS = (8, 64)
"""Fewest and most of a round in the paper (section 8.1)."""
_QUICK_ACTORS = (2, 6)
_NO_LIMIT_USD = 1e6
"""A budget that never cuts in: it would depend on measured times, and so on the machine."""

Body = dict[str, JsonValue]
T = TypeVar("T")

PAPER_DETECTOR: Body = {"num_samples": 512, "sampling": "even"}
"""A subset that is spread over the round's trajectories, as the paper measures (section 6.2)."""
OWN_DETECTOR: Body = {}
"""A job's default (decision 024)."""
_TOLERANCE = 0.01
"""The detector's residual in all recorded cells. Jobs have a smaller one since (decision 019)."""


class CellId(NamedTuple):
    """Names one cell."""

    condition: str
    env_id: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One piece of work; its outcome is one file."""

    id: CellId
    task: Message
    """A `JobSpec`, or what else the experiment's own work needs. A stored outcome of an equal task
    is used again."""
    hyperparameters: Body = field(default_factory=dict)
    """Digest of a job's resolved preset: presets change, and outcomes of another are not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large an experiment is."""

    seeds: int
    quick: bool
    """Shows that it runs; its numbers mean nothing."""

    def of(self, full: T, quick: T) -> T:
        """Return one of two sizes."""
        return quick if self.quick else full


class LeftOut(Message):
    """Cells that were not made, and why."""

    what: str
    why: str


@dataclass(slots=True)
class Grid:
    """Collects cells."""

    cells: list[Cell] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def add_job(
        self, condition: str, env_id: str, seed: int, body: Mapping[str, JsonValue]
    ) -> None:
        """Add a job, or note why it cannot be made.

        Args:
            condition: Which treatment this is.
            env_id: Which environment.
            seed: The job's seed.
            body: The other fields of its `JobSpec`.
        """
        reason = environment_problem(env_id)
        if reason is None:
            try:
                named = {"env_id": env_id, "seed": seed, "detector": _measured(body)}
                spec = JobSpec.model_validate({**body, **named})
                full = resolve_for(spec, _described(env_id)).model_dump(mode="json")
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                reason = f"{'.'.join(str(p) for p in first['loc'])}: {first['msg']}"
            else:
                cell_id = CellId(condition, env_id, seed)
                self.cells.append(Cell(id=cell_id, task=spec, hyperparameters=full))
                return
        self.left_out.setdefault(f"{condition} on {env_id}", reason)

    def add(self, condition: str, env_id: str, seed: int, task: Message) -> None:
        """Add a cell that is no job."""
        self.cells.append(Cell(id=CellId(condition, env_id, seed), task=task))


def _measured(body: Mapping[str, JsonValue]) -> JsonValue:
    """Return a job's detector, which measures as exactly as those of the recorded cells."""
    detector = body.get("detector", {})
    return {"tolerance": _TOLERANCE, **detector} if isinstance(detector, dict) else detector


@functools.cache
def environment_problem(env_id: str) -> str | None:
    """Return why an environment cannot be trained on here, None if it can."""
    try:
        _described(env_id)
    except ValueError as error:
        return str(error).splitlines()[0]
    return None


@functools.cache
def _described(env_id: str) -> EnvironmentSpec:
    with warnings.catch_warnings():
        # Gymnasium would rather have version 5; ours is meant.
        warnings.simplefilter("ignore", DeprecationWarning)
        return describe(EnvironmentRef(env_id=env_id))


def job_body(
    scale: Scale,
    env_id: str,
    *,
    rounds: int = 50,
    actors: tuple[int, int] = ACTORS,
    evaluate_every: int = 5,
    algorithm: str = "ppo",
    preset: str = "paper",
) -> Body:
    """Return the paper's settings (section 8.1) as a job's fields, or tiny ones.

    Args:
        scale: Full or quick.
        env_id: Decides the steps per actor.
        rounds: Policy updates.
        actors: Fewest and most of a round.
        evaluate_every: Rounds between two evaluations of ten episodes.
        algorithm: As in a job.
        preset: As in a job.
    """
    quick: Body = {
        "steps_per_actor": 32,
        "detector": {"num_samples": 64, "sampling": "even"},
        "evaluation": {"every_rounds": 1, "episodes": 2},
        "stop": {"max_rounds": min(rounds, 3), "budget_usd": _NO_LIMIT_USD},
        "actors": {
            "min": min(actors[0], _QUICK_ACTORS[0]),
            "max": min(actors[1], _QUICK_ACTORS[1]),
        },
        "hyperparameters": {"num_epochs": 1} if algorithm == "ppo" else {},
    }
    full: Body = {
        "steps_per_actor": ATARI_STEPS if env_id in ATARI else 256,
        "detector": PAPER_DETECTOR,
        "evaluation": {"every_rounds": evaluate_every, "episodes": 10},
        "stop": {"max_rounds": rounds, "budget_usd": _NO_LIMIT_USD},
        "actors": {"min": actors[0], "max": actors[1]},
    }
    body = {"algorithm": algorithm, "preset": preset, **scale.of(full, quick)}
    # As the paper has it in every preset; an experiment about longer episodes says so itself.
    return body if preset == "paper" else {**body, "episodes": {"horizon": "fragment"}}


def most_actors(scale: Scale) -> int:
    """Return the most actors of a round, where an experiment does not say otherwise."""
    return scale.of(ACTORS, _QUICK_ACTORS)[1]


def fixed(num_actors: int) -> Body:
    """Return the policy of a constant number of actors."""
    return {"policy": "fixed", "num_actors": num_actors}


def schedule(counts: Sequence[int]) -> Body:
    """Return the policy that follows a list."""
    return {"policy": "schedule", "num_actors": list(counts)}


def first(scale: Scale, items: Sequence[T], quick: int = 1) -> Sequence[T]:
    """Return all of them, or only the first few for a quick run."""
    return items[:quick] if scale.quick else items
