"""The ECS service of a kind of learner, and how long jobs wait for the learner that it starts.

A service's desired count is 1 while there is work for its kind and 0 otherwise. A learner that ends
before it leases a job is started again by ECS, on a machine that no job's bill has. So a job waits
for a bounded time and a bounded number of learners. Both count from when this scaler first saw it
wait; while a learner of its kind has another job in hand, none does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.book.records import JobRecord
from services.scaler.capacity.decision import is_held
from services.scaler.off_loop import OffLoop
from shared.contracts.learner_kind import LearnerKind

MOST_STARTS = 3
"""Learners that may end before one of them has leased the job."""
_TRIES = 2
_MAX_REASON = 300
_Key = tuple[str, float | None]
"""A job, and when it was queued: one that is resumed waits anew."""


class LearnerCapacityError(RuntimeError):
    """The service cannot be asked or changed; the message names it and what to check."""


class EcsLearnerService:
    """An ECS service; AWS starts and ends the machine below it."""

    def __init__(
        self, threads: OffLoop, *, cluster: str, service: str, region: str, timeout_s: float
    ) -> None:
        self._threads = threads
        self._cluster = cluster
        self._service = service
        self._client = boto3.client(
            "ecs",
            region_name=region,
            config=Config(
                connect_timeout=timeout_s,
                read_timeout=timeout_s,
                retries={"total_max_attempts": _TRIES, "mode": "standard"},
            ),
        )

    async def desired(self) -> int:
        """Return the service's desired count.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses, or there is no such service.
        """
        with self._errors():
            answer = await self._threads.run(
                self._client.describe_services, cluster=self._cluster, services=[self._service]
            )
        found = [s for s in answer["services"] if s["status"] == "ACTIVE"]
        if not found:
            raise LearnerCapacityError(
                f"there is no active ECS service {self._service!r} in cluster {self._cluster!r}: "
                "check NITRO_ECS_CLUSTER, NITRO_ECS_SERVICE and NITRO_ECS_CPU_SERVICE"
            )
        return int(found[0]["desiredCount"])

    async def set_desired(self, num_learners: int) -> None:
        """Change the service's desired count.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
        """
        with self._errors():
            await self._threads.run(
                self._client.update_service,
                cluster=self._cluster,
                service=self._service,
                desiredCount=num_learners,
            )

    async def ended(self) -> frozenset[str]:
        """Return the service's tasks that have stopped, those of about the last hour.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
        """
        with self._errors():
            answer = await self._threads.run(
                self._client.list_tasks,
                cluster=self._cluster,
                serviceName=self._service,
                desiredStatus="STOPPED",
            )
        return frozenset(answer["taskArns"])

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise LearnerCapacityError(
                f"ECS service {self._service!r} in cluster {self._cluster!r}: "
                f"{type(error).__name__}: {error}"[:_MAX_REASON]
            ) from error


@dataclass(slots=True)
class _Wait:
    since: float
    """Unix seconds."""
    ended_before: frozenset[str] | None
    """Learners that had ended by then; None as long as nobody could tell."""


class LearnerWait:
    """Watches the jobs of a kind that no learner has."""

    def __init__(self, *, longest_s: float) -> None:
        self._longest_s = longest_s
        self._waits: dict[_Key, _Wait] = {}

    def given_up(
        self, jobs: Sequence[JobRecord], ended: frozenset[str] | None, now: float
    ) -> dict[str, str]:
        """Return the jobs that have waited for too long, each with the reason.

        `ended` names the learners that have ended, as far as they are remembered; None if nobody
        can tell.
        """
        waiting = () if any(is_held(record, now) for record in jobs) else jobs
        keys = {(record.job.job_id, record.queued_at) for record in waiting}
        self._waits = {
            key: self._waits.get(key) or _Wait(since=now, ended_before=ended) for key in keys
        }
        reasons = {}
        for (job_id, _), wait in self._waits.items():
            if wait.ended_before is None:
                wait.ended_before = ended
            why = self._why(wait, ended, now)
            if why is not None:
                reasons[job_id] = why
        return reasons

    def _why(self, wait: _Wait, ended: frozenset[str] | None, now: float) -> str | None:
        starts = len((ended or frozenset()) - (wait.ended_before or frozenset()))
        if starts >= MOST_STARTS:
            return f"{starts} learners ended before they took the job: the learner's log says why"
        if now - wait.since < self._longest_s:
            return None
        return (
            f"no learner took the job within {self._longest_s / 60:.0f} minutes "
            "(NITRO_LEARNER_WAIT_S): the events of the learner's ECS service and its log say why"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedLearner:
    """A kind of learner that exists only while there are jobs for it."""

    kind: LearnerKind
    service: EcsLearnerService
    wait: LearnerWait
    """Tells which of its jobs have waited for too long."""
