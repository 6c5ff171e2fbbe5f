"""The scaler's records.

All of a job's state lives in one `JobRecord` with a version. Every write is one `Change` that
takes effect as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from services.scaler.book.attempts import FunctionTimes, OpenAttempt, OpenGradients, RoundEntry
from services.scaler.refusals import conflict
from services.scaler.scaling.base import RoundCosts
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import FINISHED, Job
from shared.contracts.leases import hash_of_lease
from shared.contracts.message import (
    Count,
    Identifier,
    Message,
    NonNegativeFloat,
    Number,
    PositiveInt,
)
from shared.contracts.rounds import EvaluationResult
from shared.contracts.views.jobs import JobSummary
from shared.money.warmth import WarmUse


class LeaseRecord(Message):
    """The learner of a job, and the expiry unless renewed."""

    lease_id: Identifier
    learner_id: Identifier
    expires_at: float


class LearnerStart(Message):
    """The newest requested task of a job."""

    number: PositiveInt
    """Number of requested tasks so far. With the job's id it identifies the request, so a repeat
    starts nothing.
    """
    at: Number
    """Time of the request, in Unix seconds."""
    since: Number
    """Start of the wait for a requested learner."""
    vain: Count = 0
    """Earlier tasks in this wait that ended without taking the job."""
    num_leases: Count
    """Number of the job's leases at that time."""
    task: str | None = None
    """The task's ARN; None until ECS has said that it runs it."""


class JobRecord(Message):
    """One job and the scaler's bookkeeping about it."""

    job: Job
    version: Count = 0
    position: Count = 0
    """Position among all jobs in order of submission."""
    idempotency_key: str | None = None
    """Under which it was submitted."""
    lease: LeaseRecord | None = None
    start: LearnerStart | None = None
    """Its current or future task; None if learners are not started for jobs."""
    settled_usd: NonNegativeFloat = 0.0
    open_attempts: tuple[OpenAttempt, ...] = ()
    open_gradients: tuple[OpenGradients, ...] = ()
    num_lines: Count = 0
    """Ledger lines written."""
    reported_lines: Count = 0
    """Ledger lines the learner has been told of."""
    accounted_until: float | None = None
    """Start of the unbilled wall time; None without a learner."""
    held_carry_s: NonNegativeFloat = 0.0
    """Unbilled time of earlier leases."""
    finished_lease_id: Identifier | None = None
    """Lease under which the job ended, so that its learner may repeat the report."""
    wall_started_at: float | None = None
    """Time of the first round since the last start; None before it."""
    wall_used_s: NonNegativeFloat = 0.0
    """Wall time of earlier starts."""
    longest_learner_s: NonNegativeFloat = 0.0
    costs: RoundCosts | None = None
    """Average cost of its rounds; None before the first bill."""
    num_leases: Count = 0
    """Leases given of it so far."""
    lost_leases: Count = 0
    """Leases that learners let expire since a round last ended."""
    projected_wall_s: NonNegativeFloat = 0.0
    serverful_wall_s: NonNegativeFloat = 0.0
    """How long the rounds settled so far would have taken on the paper's servers."""
    server_wall_s: dict[str, NonNegativeFloat] = {}
    """How long they would have taken on one server, by its size."""
    environments: Count = 0
    """Most concurrent invocations so far, without environments released since: the number of warm
    environments.
    """
    warm: Count | None = None
    """Environments it keeps warm, as far as the deployment does; None before its first plan."""
    warm_since: float = 0.0
    """When that last changed, on the clock that bills the job."""
    closing_usd: NonNegativeFloat = 0.0
    """Money that its last plan reserved for the end; 0 before the first plan and after a final one.
    """
    cold_pings: Count = 0
    """Unbilled environments that its pings found gone and restarted."""
    function_times: FunctionTimes | None = None
    """Of its newest round that had functions; None before the first."""
    only_own: bool = False
    """Whether its newest round runs only on own cores, so that it keeps no environment warm."""
    warm_use: WarmUse = WarmUse()
    """Its rounds' use of environments, for `warm: auto`."""
    final_evaluation: EvaluationResult | None = None
    exhausted: bool = False
    """Whether its learner has been told that the budget is used up; until it is resumed."""
    queued_at: float | None = None
    """Time when its user last queued it."""
    rewinds: Count = 0
    """Number of returns to an earlier round; data of later rounds with a lower number is void."""
    num_events: Count = 0
    """Events noted so far, the submission not among them."""
    deleting: bool = False
    """Whether its user has deleted it: from then on it can only be removed."""

    def with_job(self, **updated: object) -> Self:
        """Return the record with these fields of its job."""
        return self.model_copy(update={"job": self.job.model_copy(update=updated)})

    def held_by(self, lease_id: str) -> LeaseRecord:
        """Return the lease of a call.

        Raises:
            ApiError: The caller does not hold the job (any more).
        """
        if self.lease is None or self.lease.lease_id != lease_id:
            raise conflict(
                f"lease {hash_of_lease(lease_id)} on job {self.job.job_id} is lost: it expired or "
                "was returned, or the job has ended"
            )
        return self.lease

    @property
    def is_live(self) -> bool:
        """Whether anything is still to be done about it."""
        ended = self.job.status in FINISHED and self.lease is None
        return not ended or self.has_open_bills

    @property
    def demand(self) -> tuple[str, str | None, int | None] | None:
        """Its need for capacity: state, lease and warm environments; None for none."""
        if self.job.status in (*FINISHED, "checking"):
            return None
        lease_id = None if self.lease is None else self.lease.lease_id
        return self.job.status, lease_id, self.warm

    @property
    def has_open_bills(self) -> bool:
        """Whether it has launches without a final bill."""
        return bool(self.open_bills)

    @property
    def open_bills(self) -> tuple[OpenAttempt | OpenGradients, ...]:
        """Its launches without a final bill."""
        return (*self.open_attempts, *self.open_gradients)

    def settled_rounds(self, planned: int) -> int:
        """Return how many of the planned rounds, from the first, have a final bill."""
        return min({planned, *(each.round for each in self.open_bills)})

    @property
    def reserved_usd(self) -> float:
        """Money set aside for rounds whose bill is not final."""
        return sum(each.reserved_usd for each in self.open_bills)

    @property
    def committed_usd(self) -> float:
        """Money spent or set aside."""
        return self.settled_usd + self.reserved_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One atomic write: the job's new record with its other changes."""

    record: JobRecord
    rounds: tuple[RoundEntry, ...] = ()
    """Entries to write, replacing those of the same round."""
    lines: tuple[LedgerLine, ...] = ()
    """Ledger lines to append."""
    forget_rounds_from: int | None = None
    """Remove entries of this round and later ones first."""


Decide = Callable[[JobRecord], Change | None]
"""Decides a job's change from its current record; None where nothing is to be written."""


class IdempotencyEntry(Message):
    """The first use of a key."""

    key: str
    body_digest: str
    job_id: str


class JobRow(Message):
    """A job's row in the list of all jobs."""

    summary: JobSummary
    is_live: bool
    """Whether anything is still to be done about it."""

    @classmethod
    def of(cls, record: JobRecord) -> Self:
        """Return a job's row."""
        summary = JobSummary.of(record.job, reserved_usd=record.reserved_usd)
        return cls(summary=summary, is_live=record.is_live)
