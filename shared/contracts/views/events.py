"""The events of a job, one line each."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import Count, JobId, Message, Number

EventKind = Literal[
    "submitted",
    "queued",
    "refused",
    "claimed",
    "handed_back",
    "lease_lost",
    "launched",
    "reopened",
    "actors_lost",
    "actors_retried",
    "rewound",
    "warm_changed",
    "scaling_switched",
    "resumed",
    "stop_asked",
    "ended",
]
KEPT_EVENTS = 500
"""Number of a job's events to keep, newest first."""
LONGEST_TEXT = 300


class JobEvent(Message):
    """One event."""

    number: Count
    """Counted from 0, the submission."""
    at: Number
    """Unix seconds."""
    kind: EventKind
    round: Count | None = None
    attempt: Count | None = None
    count: Count | None = None
    """Number of affected actors or environments."""
    text: Annotated[str, Field(max_length=LONGEST_TEXT)]
    """In words, for people."""


class EventPage(Message):
    """Events in order."""

    job_id: JobId
    events: tuple[JobEvent, ...]
    last: Count
    """Number of the job's newest event."""
    forgotten: Count
    """Number of requested events that are no longer kept."""
