"""Gradients by functions: what the learner asks of the scaler, and the scaler of a function."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import Count, Identifier, JobId, Message, NonNegativeFloat, Number

MAX_CALLS = 256
"""Calls of one request."""
MAX_MESSAGE_BYTES = 64 * 2**20
"""Largest weights, slice or gradient in the cache, uncompressed."""
MAX_OTHERS = 64
"""Versions of the weights that ratios are truncated over."""


class GradientCall(Message):
    """One gradient of a round's update: what it is of, by name."""

    call: Count
    """Number of the slice, counted over all passes of the round."""
    base: Count
    """Version of the weights that it is computed at."""
    others: Annotated[tuple[Count, ...], Field(max_length=MAX_OTHERS)] = ()
    """Other versions, inside the staleness bound, that functions work on: ratios are truncated over
    them."""


class GradientTask(Message):
    """The Lambda event of one gradient: names of what lies in the cache, and nothing of it."""

    mode: Literal["gradient"] = "gradient"
    job_id: JobId
    round: Count
    request: Count
    lease_hash: Annotated[str, Field(max_length=64)]
    """Names the learner's hold on the job: another learner's gradients have other names."""
    call: GradientCall
    deadline_at: NonNegativeFloat
    """Unix seconds from which on nobody waits for it."""


class GradientReport(Message):
    """The Lambda reply to a `GradientTask`."""

    job_id: JobId
    round: Count
    call: Count
    outcome: Literal["stored", "duplicate", "late", "expired"]
    """What the cache did with it; `expired`: its deadline had passed, and nothing was done."""
    fetch_s: NonNegativeFloat
    """Fetching weights and slice."""
    compute_s: NonNegativeFloat
    push_s: NonNegativeFloat
    """Storing the gradient."""
    total_s: NonNegativeFloat
    cold_start: bool


class GradientRequest(Message):
    """The learner's call for gradients; harmless to repeat under the same number."""

    lease_id: Identifier
    request: Count
    """Counted in each round from 0, and anew under each lease."""
    calls: Annotated[tuple[GradientCall, ...], Field(min_length=1, max_length=MAX_CALLS)]


class GradientGrant(Message):
    """The scaler's answer."""

    request: Count
    granted: bool
    """Whether its functions are launched, now or before."""
    reason: str = ""
    """Why not."""
    deadline_s: NonNegativeFloat = 0.0
    """How long the learner waits for them at most."""


class GradientRecord(Message):
    """What became of the gradients of an update, or of all updates of a round."""

    asked: Count
    """Calls; the sum of `used`, `stale` and `lost`."""
    used: Count
    stale: Count
    """Older than the bound: dropped."""
    lost: Count
    """Never came, or came damaged."""
    duplicate: Count = 0
    """Delivered again after the first had been stored: dropped, and not counted elsewhere."""
    steps: Count = 0
    """Optimiser steps."""
    staleness: tuple[Count, ...] = ()
    """Of each gradient used, when it was aggregated, in the order of that."""
    queued: tuple[Count, ...] = ()
    """Gradients in the queue at each aggregation."""
    bound: Number | None = None
    """On the mean staleness in the last update; None without one."""
    version: Count = 0
    """Of the weights after the update: the optimiser's steps so far."""
    invoke_s: NonNegativeFloat = 0.0
    """Mean seconds of a used call: from asking to the function's beginning."""
    fetch_s: NonNegativeFloat = 0.0
    compute_s: NonNegativeFloat = 0.0
    push_s: NonNegativeFloat = 0.0
    """From the end of the computation to the gradient's arrival."""
    aggregate_s: NonNegativeFloat = 0.0
    """Mean seconds of an aggregation: the mean, the step and publishing the weights."""
