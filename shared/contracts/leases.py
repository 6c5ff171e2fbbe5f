"""Leases: which learner trains which job, and how it reports the end."""

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.jobs import Job, StopReason
from shared.contracts.learner_kind import MachineKind
from shared.contracts.message import Count, Identifier, JobId, Message, NonNegativeFloat, Number
from shared.contracts.rounds import EvaluationResult

_LEASE_HASH_DIGITS = 12
LONGEST_TROUBLE = 500
"""Characters."""


def hash_of_lease(lease_id: str) -> str:
    """Return a digest of a lease for functions.

    The lease itself would let a reader of their logs plan rounds.
    """
    return hashlib.sha256(lease_id.encode()).hexdigest()[:_LEASE_HASH_DIGITS]


class LeaseRequest(Message):
    """A learner asks for work."""

    learner_id: Identifier
    kind: MachineKind | None = None
    """Kind of learner; None takes any job, as on one machine."""
    job_id: JobId | None = None
    """The requested job: of the given `kind`, or `external` without one. Without it, `external`
    jobs are never leased.
    """
    wait_s: Annotated[Number, Field(ge=0, le=60)] = 20.0
    """How long the scaler may hold the request open until a job is queued."""
    trouble: Annotated[str, Field(max_length=LONGEST_TROUBLE)] | None = None
    """Why this learner cannot train now, for example because the cache refuses it. It gets no job,
    and waiting jobs show the reason.
    """


class Lease(Message):
    """The right to train one job, until it expires or is returned."""

    lease_id: Identifier
    job: Job
    expires_in_s: NonNegativeFloat
    heartbeat_every_s: NonNegativeFloat
    epoch: Count = 0
    """Counts the job's leases: a newer lease has a larger number."""
    cache_url: str | None = None
    """For an `external` job: the scaler's address of the trajectory cache. It may contain a
    password, so only holders of the API's token get it.
    """


class LeaseState(Message):
    """The answer to a heartbeat."""

    expires_in_s: NonNegativeFloat
    stop: StopReason | None
    """Set if the learner should end the job after its current update."""


class FinishRequest(Message):
    """The learner's last word on a job."""

    lease_id: Identifier
    status: Literal["succeeded", "stopped", "failed"]
    stop_reason: StopReason
    error: str | None = None
    fails_again: bool = False
    """Whether a resume would fail in the same way."""
    final_evaluation: EvaluationResult | None = None
