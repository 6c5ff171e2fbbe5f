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
    """Return what functions know a lease by.

    Not by its own name, which lets its holder plan rounds: events are in logs.
    """
    return hashlib.sha256(lease_id.encode()).hexdigest()[:_LEASE_HASH_DIGITS]


class LeaseRequest(Message):
    """A learner asks for work."""

    learner_id: Identifier
    kind: MachineKind | None = None
    """Kind of jobs that it trains; None takes any, as where one machine does everything."""
    job_id: JobId | None = None
    """The one job that is asked for: of the `kind` given, or `external` where none is given.
    Without it `external` jobs are left alone."""
    wait_s: Annotated[Number, Field(ge=0, le=60)] = 20.0
    """How long the scaler may hold the request open until a job is queued."""
    trouble: Annotated[str, Field(max_length=LONGEST_TROUBLE)] | None = None
    """Why this learner can train none now, such as a cache that refuses it. It is given none then;
    whoever waits for a learner is shown the reason."""


class Lease(Message):
    """The right to train one job, until it expires or is given up."""

    lease_id: Identifier
    job: Job
    expires_in_s: NonNegativeFloat
    heartbeat_every_s: NonNegativeFloat
    epoch: Count = 0
    """Counts the job's leases: of two, the newer one has the larger."""
    cache_url: str | None = None
    """Of an `external` job: the trajectory cache, as the scaler reaches it. It may hold a password,
    so it is told to whoever holds the API's token and to nobody else."""


class LeaseState(Message):
    """The answer to a heartbeat."""

    expires_in_s: NonNegativeFloat
    stop: StopReason | None
    """Set when the learner should end the job after the update in hand."""


class FinishRequest(Message):
    """The learner's last word on a job."""

    lease_id: Identifier
    status: Literal["succeeded", "stopped", "failed"]
    stop_reason: StopReason
    error: str | None = None
    fails_again: bool = False
    """Whether the job would fail in the same way if it were resumed as it is."""
    final_evaluation: EvaluationResult | None = None
