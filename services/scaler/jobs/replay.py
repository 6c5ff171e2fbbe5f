"""A job's replay before the job is queued: its memory, and whether anything is learned from it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import resolve_for
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.problem import FieldError
from shared.contracts.scaling_spec import FixedScaling
from shared.hyperparameters.replay import ReplayHyperparameters

_MB = 10**6
_MIB = 1024 * 1024
_LEARNER_MB = 1000
"""Memory of a learner without its replay: 350 MB with SAC's networks, 900 with CrossQ's `paper`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerMemory:
    """Memory of the learners of a deployment, in MiB."""

    cpu_mib: float
    gpu_mib: float
    on_aws: bool
    """Whether a job's `learner_task` sets its learner's memory."""

    def of(self, spec: JobSpec, learner: LearnerKind) -> float | None:
        """Return the memory of a job's learner; None if it is the user's own program."""
        if learner == "external":
            return None
        if learner == "gpu":
            return self.gpu_mib
        size = spec.learner_task.size if self.on_aws else None
        return self.cpu_mib if size is None else size[1]

    def more(self, learner: LearnerKind) -> str:
        """Return how a job's learner gets more memory."""
        if not self.on_aws:
            return "use a machine with more memory"
        if learner == "gpu":
            return "raise the deployment's learner_memory_mb"
        return "give learner_task a cpu and memory_mb"


def numbers_per_step(environment: EnvironmentSpec) -> int:
    """Return the numbers of a step in a replay, for continuous actions.

    They are the observation, the next observation, the action, the reward, and whether anything
    follows (`learning.data.transitions`).
    """
    actions = environment.action.low if environment.action.kind == "continuous" else ()
    return 2 * math.prod(environment.observation.shape) + len(actions) + 2


def most_steps(spec: JobSpec) -> int:
    """Return the most steps that a job may take, in whole rounds."""
    num_actors = spec.actors.max
    if isinstance(spec.scaling, FixedScaling):
        num_actors = spec.scaling.num_actors
    size, stop = num_actors * spec.steps_of(num_actors), spec.stop
    rounds = stop.max_rounds
    if stop.max_env_steps is not None:
        # Rounds that are open at the limit are finished.
        rounds = min(rounds, math.ceil(stop.max_env_steps / size) + spec.open_rounds - 1)
    return rounds * size


def warm_up_warnings(spec: JobSpec, environment: EnvironmentSpec) -> tuple[str, ...]:
    """Return a warning if a job ends before its first gradient step."""
    rule = resolve_for(spec, environment)
    if not isinstance(rule, ReplayHyperparameters):
        return ()
    steps = most_steps(spec)
    if steps > rule.learning_starts:
        return ()
    return (
        f"the policy will not change: the job has at most {steps:,} steps, and "
        f"hyperparameters.learning_starts is {rule.learning_starts:,}",
    )


def replay_errors(
    spec: JobSpec, environment: EnvironmentSpec, learner: LearnerKind, memory: LearnerMemory | None
) -> Iterator[FieldError]:
    """Yield the error of a replay that will not fit; none where the memory is not known."""
    rule = resolve_for(spec, environment)
    mib = None if memory is None else memory.of(spec, learner)
    if memory is None or mib is None or not isinstance(rule, ReplayHyperparameters):
        return
    numbers = numbers_per_step(environment)
    steps = min(rule.kept_steps(numbers), most_steps(spec))
    needed_mb, has_mb = 4 * numbers * steps / _MB, mib * _MIB / _MB
    room_mb = math.floor(has_mb - _LEARNER_MB)
    if needed_mb <= room_mb:
        return
    lower = f"set it to {room_mb} or lower, or " if room_mb > 0 else ""
    message = (
        f"the replay of {steps:,} steps of {spec.env_id} takes {needed_mb:,.0f} MB, and the "
        f"learner has {has_mb:,.0f} MB, {_LEARNER_MB:,} of them for itself: {lower}"
        f"{memory.more(learner)}"
    )
    yield FieldError(field="hyperparameters.replay_mb", message=message)
