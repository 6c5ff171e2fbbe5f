"""Whether a job can run at all, decided before it is queued.

The actor image is asked what the environment is, because only it has the simulators. Then the job
is held against the account's concurrency, the cache's memory and its own budget. Every refusal
names the field and the numbers.
"""

import json
import math
import re
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import ValidationError

from services.scaler.api.problem import ApiError, field_errors, invalid
from services.scaler.jobs.network_size import network_errors, network_weights
from services.scaler.launching.lambda_function import (
    Execution,
    LambdaApiError,
    LambdaFunction,
    error_message,
)
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.money.budget import RoundPricing, smallest_budget_usd
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)
from shared.contracts.job_spec import EnvironmentRef, JobSpec
from shared.contracts.jobs import Job, resolve_for
from shared.contracts.problem import FieldError
from shared.contracts.rollouts import DescribeTask

_MAX_KNOWN = 256
_TRIES = 3
"""How often an actor may break before it has described an environment."""
_NOT_STARTED = frozenset({"throttled", "waking", "unreachable"})
PATIENCE_S = 180.0
"""How long a function that cannot start is tried again: one that wakes takes about a minute."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 3.0
_MB = 1024 * 1024
_MAX_ENVIRONMENT_BYTES = 3000
"""What a 4 KB event has left for keyword arguments and wrappers, all else at its longest."""
_MORE_CONCURRENCY = "raise what the actor function has reserved, or the Lambda quota"
MAX_TRAJECTORY_BYTES = 256 * _MB
"""What the learner takes in at most: the codec's own limit, whose module needs NumPy."""
_SCALARS_PER_STEP = 10
"""Bytes per step of reward, log-probability and the two end marks."""
_EPISODE_BYTES = 8
"""Return and length of an episode, which may last a single step."""
_HEADER_BYTES = 1 << 16
"""More than a trajectory's header has."""
_NAMED_FIELD = re.compile(
    r"(?:^|: )(env_id|env_kwargs(?:\.\w+)?|wrappers(?:\.\w+)*)\b(.*)", re.DOTALL
)
"""How the actor begins when it refuses an environment, as opposed to having broken."""
_PROCESS_ENDED = "Runtime.ExitError"
"""How Lambda reports a process that did not come back from an invocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    spec: EnvironmentSpec
    at: float
    """`time.monotonic` when the actor said so."""


class EnvironmentCatalogue:
    """What the actor image knows about environments, asked now and then. Thread-safe.

    A deployment replaces the image while the scaler runs, and with it what an environment is.
    """

    def __init__(self, function: LambdaFunction, *, ttl_s: float) -> None:
        self._function = function
        self._closing = threading.Event()
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._known: dict[str, _Described] = {}

    def knows(self, env: EnvironmentRef) -> bool:
        """Whether no actor has to be asked for an environment."""
        return self._recent(env.model_dump_json()) is not None

    def describe(self, env: EnvironmentRef) -> EnvironmentSpec:
        """Return an environment's spaces.

        Raises:
            ApiError: The actor refuses the environment, or cannot be asked.
        """
        key = env.model_dump_json()
        known = self._recent(key)
        if known is not None:
            return known
        spec = _spec_of(env.env_id, self._ask(DescribeTask(env=env)))
        with self._lock:
            self._known.pop(key, None)
            if len(self._known) >= _MAX_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = _Described(spec=spec, at=time.monotonic())
        return spec

    def _recent(self, key: str) -> EnvironmentSpec | None:
        with self._lock:
            known = self._known.get(key)
        if known is None or time.monotonic() - known.at >= self._ttl_s:
            return None
        return known.spec

    def _ask(self, task: DescribeTask) -> Execution:
        payload = task.model_dump_json().encode()
        give_up_at = time.monotonic() + PATIENCE_S
        failed, pause_s = 0, _FIRST_PAUSE_S
        while True:
            execution = self._function.invoke(payload)
            if execution.kind in _NOT_STARTED:
                # Nothing has started: Lambda is busy, wakes the function, or is out of reach.
                if time.monotonic() + pause_s >= give_up_at or self._closing.wait(pause_s):
                    return execution
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            failed += 1
            if execution.kind == "done" or _is_final(execution) or failed == _TRIES:
                return execution

    def close(self) -> None:
        """Wait no more for an actor that cannot start."""
        self._closing.set()


class Admission:
    """Refuses jobs that cannot fit."""

    def __init__(
        self,
        catalogue: EnvironmentCatalogue,
        quota: ConcurrencyQuota,
        *,
        cache_memory_mb: int,
    ) -> None:
        self._catalogue = catalogue
        self._quota = quota
        self._cache_bytes = cache_memory_mb * _MB

    def waits_for_an_actor(self, spec: JobSpec) -> bool:
        """Whether one has to describe the job's environment first."""
        return not self._catalogue.knows(spec.environment_ref)

    def refuse_at_once(self, spec: JobSpec, pricing: RoundPricing) -> None:
        """Refuse what cannot run in any environment.

        Raises:
            ApiError: The job cannot run.
        """
        _check_event_size(spec)
        errors = [*budget_errors(spec, pricing), *target_errors(spec)]
        if errors:
            raise invalid(*errors)

    def admit(self, spec: JobSpec, pricing: RoundPricing) -> EnvironmentSpec:
        """Return the job's environment.

        Raises:
            ApiError: The job cannot run; 422 with every reason, or 503 when that is not known.
        """
        _check_event_size(spec)
        environment = self._catalogue.describe(spec.environment_ref)
        # Without a network nothing else of the job has a size, nor has that without its settings.
        network = hyperparameter_errors(spec, environment) or network_errors(spec, environment)
        if network:
            raise invalid(*network)
        try:
            limit = self._quota.limit()
        except LambdaApiError as error:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the concurrency limit is not known: {error}"
            ) from error
        errors = [
            *_concurrency_errors(spec, limit),
            *_memory_errors(spec, environment, self._cache_bytes),
            *trajectory_errors(spec, environment),
            *budget_errors(spec, pricing),
            *target_errors(spec),
        ]
        if errors:
            raise invalid(*errors)
        return environment


def admitted(job: Job, environment: EnvironmentSpec) -> Job:
    """Return a job as it is queued, with what its environment decides."""
    return job.model_copy(
        update={
            "status": "queued",
            "environment": environment,
            "full_hyperparameters": resolve_for(job.spec, environment).model_dump(),
        }
    )


def hyperparameter_errors(spec: JobSpec, environment: EnvironmentSpec) -> list[FieldError]:
    """Return what of a job's hyper-parameters does not go together with its preset."""
    try:
        resolve_for(spec, environment)
    except ValidationError as error:
        below = ("body", "hyperparameters")
        return [
            *field_errors([{**wrong, "loc": (*below, *wrong["loc"])} for wrong in error.errors()])
        ]
    return []


def round_bytes(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return what a job's open rounds, at their largest, keep in the cache.

    Trajectories are counted uncompressed, stacked frames once each, with one extra observation per
    environment and episode cut short left out; the policy's weights, without their header and the
    observations' scale, are added once for each open round and once for the next.
    """
    observation = environment.observation
    item = 1 if observation.dtype == "uint8" else 4
    observation_bytes = math.prod(observation.shape) * item // (observation.frame_stack or 1)
    step_bytes = observation_bytes + _action_bytes(environment.action) + _SCALARS_PER_STEP
    actor_bytes = step_bytes * (spec.steps_per_actor + spec.envs_per_actor)
    weights = network_weights(spec, environment)
    rounds = spec.open_rounds
    return rounds * spec.actors.max * actor_bytes + (rounds + 1) * 4 * weights


def _action_bytes(action: ActionSpec) -> int:
    """Return the bytes of one action on the wire."""
    if isinstance(action, ContinuousActionSpec):
        return 4 * len(action.low)
    return 8 * (1 if isinstance(action, DiscreteActionSpec) else len(action.num_choices))


def budget_errors(
    spec: JobSpec, pricing: RoundPricing, *, committed_usd: float = 0.0
) -> list[FieldError]:
    """Return the error of a budget that does not allow one round of the fewest actors."""
    least_usd = committed_usd + smallest_budget_usd(spec, pricing)
    if spec.stop.budget_usd >= least_usd:
        return []
    spent = f" on top of ${committed_usd:.4f} already spent" if committed_usd else ""
    return [
        FieldError(
            field="stop.budget_usd",
            message=(
                f"${spec.stop.budget_usd:g} is below the worst case of one round of "
                f"{spec.actors.min} actors and the end of the job{spent}: at least "
                f"${math.ceil(least_usd * 1e4) / 1e4:.4f} are needed"
            ),
        )
    ]


def target_errors(spec: JobSpec) -> list[FieldError]:
    """Return the error of a target return without evaluations."""
    if spec.stop.target_return is None or spec.evaluation.every_rounds:
        return []
    message = (
        f"{spec.stop.target_return:g} needs evaluations to compare with, but "
        "evaluation.every_rounds is 0; raise it, or leave the target out"
    )
    return [FieldError(field="stop.target_return", message=message)]


def _check_event_size(spec: JobSpec) -> None:
    wrappers = [wrapper.model_dump() for wrapper in spec.wrappers]
    sizes = {
        "env_kwargs": len(json.dumps(spec.env_kwargs)),
        "wrappers": len(json.dumps(wrappers)),
    }
    size = sum(sizes.values())
    if size > _MAX_ENVIRONMENT_BYTES:
        message = (
            f"{size} bytes as JSON, at most {_MAX_ENVIRONMENT_BYTES} fit into an actor's event"
        )
        raise invalid(FieldError(field=max(sizes, key=sizes.__getitem__), message=message))


def _concurrency_errors(spec: JobSpec, limit: int) -> list[FieldError]:
    if spec.actors.max <= limit:
        return _overlap_errors(spec, limit)
    return [
        FieldError(
            field="actors.max",
            message=(
                f"{spec.actors.max} actors exceed the limit of {limit} concurrent executions; "
                f"lower it, or {_MORE_CONCURRENCY}"
            ),
        )
    ]


def _overlap_errors(spec: JobSpec, limit: int) -> list[FieldError]:
    rounds = min(spec.open_rounds, spec.stop.max_rounds)
    if rounds * spec.actors.min <= limit:
        return []
    message = (
        f"{rounds} open rounds of at least {spec.actors.min} actors exceed the limit of {limit} "
        f"concurrent executions; lower it or actors.min, or {_MORE_CONCURRENCY}"
    )
    return [FieldError(field="rounds_in_flight", message=message)]


def trajectory_errors(spec: JobSpec, environment: EnvironmentSpec) -> list[FieldError]:
    """Return the error of trajectories that no learner would take in."""
    observation = environment.observation
    item = 1 if observation.dtype == "uint8" else 4
    # One more for each episode cut short, which the learner values apart.
    limit = environment.max_episode_steps
    num_finals = spec.steps_per_actor // limit if limit else 0
    num_observations = spec.steps_per_actor + spec.envs_per_actor + num_finals
    # Frames that are stacked come once each; the learner has them as often as they are seen.
    seen = math.prod(observation.shape) * item * num_observations
    step_bytes = _action_bytes(environment.action) + _SCALARS_PER_STEP + _EPISODE_BYTES
    sent = seen // (observation.frame_stack or 1) + step_bytes * spec.steps_per_actor
    needed = max(seen, sent + _HEADER_BYTES)
    if needed <= MAX_TRAJECTORY_BYTES:
        return []
    message = (
        f"a trajectory of {spec.steps_per_actor} steps may have {needed / _MB:.1f} MB, the learner "
        f"accepts {MAX_TRAJECTORY_BYTES / _MB:.0f} MB; lower steps_per_actor"
    )
    return [FieldError(field="steps_per_actor", message=message)]


def _memory_errors(
    spec: JobSpec, environment: EnvironmentSpec, cache_bytes: int
) -> list[FieldError]:
    needed = round_bytes(spec, environment)
    if needed <= cache_bytes:
        return []
    return [
        FieldError(
            field="steps_per_actor",
            message=(
                f"{_rounds(spec)} of {spec.actors.max} actors with {spec.steps_per_actor} steps "
                f"may take {needed / _MB:.0f} MB, the cache has {cache_bytes / _MB:.0f} MB; lower "
                "steps_per_actor or actors.max, or use a larger cache (NITRO_CACHE_MEMORY_MB)"
            ),
        )
    ]


def _rounds(spec: JobSpec) -> str:
    return "a round" if spec.open_rounds == 1 else f"{spec.open_rounds} open rounds"


def _refused_field(execution: Execution) -> FieldError | None:
    """Return what the actor says is wrong with the environment; None when it did not say so."""
    if execution.kind != "failed" or not execution.payload:
        return None
    named = _NAMED_FIELD.search(error_message(execution.payload))
    if named is None:
        return None
    # The field is told beside the message: it need not begin with it once more.
    return FieldError(field=named.group(1), message=named.group(2).lstrip(": "))


def _is_final(execution: Execution) -> bool:
    """Whether another actor would say the same: the environment is refused, broke or hung."""
    refused = _refused_field(execution) is not None
    return refused or execution.kind == "refused" or execution.failure != "lost"


def _spec_of(env_id: str, execution: Execution) -> EnvironmentSpec:
    if execution.kind == "done":
        try:
            return EnvironmentSpec.read(execution.payload)
        except ValidationError as error:
            raise ApiError(
                HTTPStatus.BAD_GATEWAY,
                f"the actor's description of the environment is malformed: {error}",
            ) from error
    refused = _refused_field(execution)
    if refused is not None:
        raise invalid(refused)
    if execution.failure != "lost":
        raise invalid(FieldError(field="env_id", message=f"{env_id!r}: {execution.reason}"))
    if execution.kind == "failed" and _PROCESS_ENDED in execution.reason:
        message = f"{env_id!r} ended the actor's process each time: {execution.reason}"
        raise invalid(FieldError(field="env_id", message=message))
    raise ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"the actor function cannot be asked about env_id {env_id!r}: {execution.reason}",
    )
