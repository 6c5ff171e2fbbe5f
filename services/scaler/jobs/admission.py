"""Admission: whether a job can run, decided before it is queued.

Once the actor image has described the environment, the job is checked against the account's
concurrency, the cache's memory and its own budget. Every refusal names the field and the numbers.

If each job has its own learner, the cache has to hold all unfinished jobs. Otherwise jobs with the
same kind of learner run in sequence, so it has to hold the largest of each kind, and all external
jobs. Leftovers of ended jobs expire within an hour and are not counted.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

from pydantic import ValidationError

from services.scaler.book.records import JobRecord
from services.scaler.jobs.cache_use import (
    cache_errors,
    round_bytes,
    traffic_warnings,
    trajectory_errors,
)
from services.scaler.jobs.catalogue import EnvironmentCatalogue
from services.scaler.jobs.fit import fit_errors
from services.scaler.jobs.initial_policy import initial_policy_errors
from services.scaler.jobs.replay import LearnerMemory, replay_errors, warm_up_warnings
from services.scaler.launching.lambda_function import LambdaApiError
from services.scaler.launching.orders import longest_event_bytes
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.launching.tasks import MAX_EVENT_BYTES
from services.scaler.money.budget import RoundPricing, least_pricing, smallest_budget_usd
from services.scaler.off_loop import OffLoop
from services.scaler.refusals import ApiError, invalid, refuse_wrong
from shared.artifacts.store import JOB_FILE, ArtifactStore
from shared.contracts.environment_spec import (
    EnvironmentSpec,
)
from shared.contracts.field_errors import first_reason
from shared.contracts.going_on import resized
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, resolve_for
from shared.contracts.learner_kind import LearnerKind, learner_kind
from shared.contracts.problem import FieldError
from shared.deployment.machines import GPU_QUOTA

_MB = 1024 * 1024
_MORE_CONCURRENCY = "raise the actor function's reserved concurrency, or the Lambda quota"
_NO_GPU = (
    "this deployment has no learner with a GPU: set learner to cpu. Or raise the quota 'Running "
    f"On-Demand G and VT instances' ({GPU_QUOTA}), name a machine in learner_instance_types, and "
    "deploy again"
)


@dataclass(eq=False)
class Admission:
    """Refuses jobs that cannot fit."""

    catalogue: EnvironmentCatalogue
    quota: ConcurrencyQuota
    live: Callable[[], Sequence[JobRecord]]
    """Returns the unfinished jobs."""
    threads: OffLoop
    _: KW_ONLY
    cache_memory_mb: int
    files: ArtifactStore | None = None
    has_gpu: bool = True
    cache_node: str | None = None
    """The cache's node on AWS; None elsewhere."""
    side_by_side: bool = False
    """Whether each job has its own learner."""
    learner_memory: LearnerMemory | None = None
    """None if it is not known."""

    def waits_for_an_actor(self, spec: JobSpec) -> bool:
        """Whether an actor has to describe the job's environment first."""
        return self.catalogue.known(spec.environment_ref) is None

    def refuse_at_once(self, spec: JobSpec, pricing: RoundPricing) -> None:
        """Refuse jobs that cannot run in any environment.

        Raises:
            ApiError: The job cannot run.
        """
        refuse_wrong([*_event_errors(spec), *self._learner_errors(least_learner(spec))])
        least = least_pricing(spec, least_learner(spec), pricing)
        refuse_wrong([*budget_errors(spec, least), *_target_errors(spec)])

    async def admit(self, spec: JobSpec, pricing: RoundPricing) -> EnvironmentSpec:
        """Return the job's environment.

        Raises:
            ApiError: The job cannot run: 422 with every reason; or 503 if unknown.
        """
        refuse_wrong(_event_errors(spec))
        environment = await self.catalogue.describe(spec.environment_ref)
        timeout_s = pricing.basis.function_timeout_s
        refuse_wrong(fit_errors(spec, environment, timeout_s=timeout_s))
        spec = resized(spec, environment)
        try:
            limit = await self.quota.limit()
        except LambdaApiError as error:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the concurrency limit is not known: {error}"
            ) from error
        learner = learner_in(spec, environment)
        least = least_pricing(spec, learner, pricing)
        # Without `init_from` no file is read, so a slow bucket delays no other job.
        earlier = await self.threads.run(self._earlier, spec) if spec.init_from else None
        refuse_wrong(
            [
                *_concurrency_errors(spec, limit),
                *self.room_errors(spec, environment),
                *trajectory_errors(spec, environment),
                *budget_errors(spec, least),
                *_target_errors(spec),
                *initial_policy_errors(spec, environment, earlier),
            ]
        )
        return environment

    def _learner_errors(self, learner: LearnerKind) -> Iterator[FieldError]:
        """Yield the error of a job whose learner this deployment does not have."""
        if learner == "gpu" and not self.has_gpu:
            yield FieldError(field="learner", message=_NO_GPU)

    def _earlier(self, spec: JobSpec) -> Job | None:
        """Return the earlier job of `init_from` from its files.

        Raises:
            ApiError: The file cannot be read.
        """
        if spec.init_from is None or self.files is None:
            return None
        text = self.files.read(spec.init_from.job_id, JOB_FILE)
        try:
            return None if text is None else Job.read(text)
        except ValidationError as error:
            message = (
                f"its {JOB_FILE} cannot be read: {first_reason(error)}; "
                "restore it or name another job"
            )
            raise invalid(FieldError(field="init_from.job_id", message=message)) from error

    def room_errors(self, spec: JobSpec, environment: EnvironmentSpec) -> list[FieldError]:
        """Return why a job does not fit now: no learner, or too little memory in the cache."""
        learner = learner_in(spec, environment)
        full = cache_errors(spec, environment, self.cache_memory_mb * _MB, self._beside(learner))
        replay = replay_errors(spec, environment, learner, self.learner_memory)
        return [*self._learner_errors(learner), *full, *replay]

    def _beside(self, learner: LearnerKind) -> int:
        """Return the most bytes of other live jobs in the cache, given a learner."""
        sizes: defaultdict[LearnerKind, list[int]] = defaultdict(list)
        for job in (record.job for record in self.live()):
            if job.environment is not None:
                sizes[job.learner].append(round_bytes(job.spec, job.environment))
        if self.side_by_side:
            return sum(sum(each) for each in sizes.values())
        # Each external job has its own client.
        clients = sum(sizes.pop("external", ()))
        return clients + sum(max(each) for kind, each in sizes.items() if kind != learner)


def admitted(job: Job, environment: EnvironmentSpec, cache_node: str | None) -> Job:
    """Return a job as it is queued, with its environment's and the cache node's values."""
    return job.model_copy(
        update={
            "spec": resized(job.spec, environment),
            "status": "queued",
            "environment": environment,
            "learner": learner_in(job.spec, environment),
            "warnings": warnings_of(job.spec, environment, cache_node),
            "full_hyperparameters": resolve_for(job.spec, environment).model_dump(),
        }
    )


def warnings_of(
    spec: JobSpec, environment: EnvironmentSpec, cache_node: str | None
) -> tuple[str, ...]:
    """Return the warnings about a job that can run."""
    slow = () if cache_node is None else traffic_warnings(spec, environment, cache_node)
    return (*slow, *warm_up_warnings(spec, environment))


def least_learner(spec: JobSpec) -> LearnerKind:
    """Return the cheapest learner that a job may have in any environment."""
    return learner_kind(spec.learner, images=False)


def possible_learners(spec: JobSpec) -> set[LearnerKind]:
    """Return the learners that a job may have in any environment."""
    return {learner_kind(spec.learner, images=images) for images in (False, True)}


def learner_in(spec: JobSpec, environment: EnvironmentSpec) -> LearnerKind:
    """Return the learner that a job has in its environment."""
    return learner_kind(spec.learner, images=environment.observation.has_images)


def _event_errors(spec: JobSpec) -> Iterator[FieldError]:
    size = longest_event_bytes(spec.environment_ref)
    if size > MAX_EVENT_BYTES:
        parts = spec.environment_ref.model_dump(exclude={"env_id"})
        sizes = {name: len(json.dumps(value)) for name, value in parts.items()}
        message = (
            f"with it an actor's event may have {size} bytes, at most {MAX_EVENT_BYTES} fit; "
            f"shorten it by {size - MAX_EVENT_BYTES}"
        )
        yield FieldError(field=max(sizes, key=sizes.__getitem__), message=message)


def budget_errors(
    spec: JobSpec, pricing: RoundPricing, *, committed_usd: float = 0.0
) -> Iterator[FieldError]:
    """Yield the error of a budget that does not allow one round of the fewest actors."""
    least_usd = committed_usd + smallest_budget_usd(spec, pricing)
    if spec.stop.budget_usd < least_usd:
        spent = f" on top of ${committed_usd:.4f} already spent" if committed_usd else ""
        message = (
            f"${spec.stop.budget_usd:g} is below the worst case of one round of "
            f"{spec.actors.min} actors and the end of the job{spent}: at least "
            f"${math.ceil(least_usd * 1e4) / 1e4:.4f} are needed"
        )
        yield FieldError(field="stop.budget_usd", message=message)


def _target_errors(spec: JobSpec) -> Iterator[FieldError]:
    if spec.stop.target_return is not None and not spec.evaluation.every_rounds:
        message = (
            f"{spec.stop.target_return:g} needs evaluations, but evaluation.every_rounds is 0; "
            "raise it, or remove the target"
        )
        yield FieldError(field="stop.target_return", message=message)


def _concurrency_errors(spec: JobSpec, limit: int) -> Iterator[FieldError]:
    rounds = min(spec.open_rounds, spec.stop.max_rounds)
    if spec.actors.max > limit:
        message = (
            f"{spec.actors.max} actors exceed the limit of {limit} concurrent executions; "
            f"lower it, or {_MORE_CONCURRENCY}"
        )
        yield FieldError(field="actors.max", message=message)
    elif rounds * spec.actors.min > limit:
        message = (
            f"{rounds} open rounds of at least {spec.actors.min} actors exceed the limit of "
            f"{limit} concurrent executions; lower it or actors.min, or {_MORE_CONCURRENCY}"
        )
        yield FieldError(field="rounds_in_flight", message=message)
