"""Messages of learner functions: between learner and scaler, and between scaler and function."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import Count, Identifier, JobId, Message, NonNegativeFloat, Number

MAX_CALLS = 256
"""Most calls of one request."""
MAX_MESSAGE_BYTES = 64 * 2**20
"""Largest weights, slice or gradient in the cache, uncompressed."""
MAX_OTHERS = 64
"""Most versions of the weights for the truncation of ratios."""


class GradientCall(Message):
    """The name of one gradient of a round's update."""

    call: Count
    """Number of the slice, counted over all passes of the round."""
    base: Count
    """Version of its weights."""
    others: Annotated[tuple[Count, ...], Field(max_length=MAX_OTHERS)] = ()
    """Other versions inside the staleness bound on which functions work, for the truncation of
    ratios.
    """


class GradientTask(Message):
    """The Lambda event of one gradient: only names of entries in the cache."""

    mode: Literal["gradient"] = "gradient"
    job_id: JobId
    round: Count
    request: Count
    lease_hash: Annotated[str, Field(max_length=64)]
    """Digest of the lease: another learner's gradients have other names."""
    call: GradientCall
    deadline_at: NonNegativeFloat
    """Unix time after which nobody waits for it."""


class GradientReport(Message):
    """The Lambda reply to a `GradientTask`."""

    job_id: JobId
    round: Count
    call: Count
    outcome: Literal["stored", "duplicate", "late", "expired"]
    """Outcome in the cache; `expired`: the deadline had passed, and nothing was computed."""
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
    """Number of the call, from 0 in each round and under each lease."""
    calls: Annotated[tuple[GradientCall, ...], Field(min_length=1, max_length=MAX_CALLS)]


class GradientGrant(Message):
    """The scaler's answer."""

    request: Count
    granted: bool
    """Whether its functions have been launched."""
    reason: str = ""
    """Why not."""
    deadline_s: NonNegativeFloat = 0.0
    """How long the learner waits for them at most."""


class GradientRecord(Message):
    """Outcomes of the gradients of an update, or of all updates of a round."""

    asked: Count
    """Calls; the sum of `used`, `stale` and `lost`."""
    used: Count
    stale: Count
    """Gradients dropped because they were older than the bound."""
    lost: Count
    """Gradients that never arrived, or arrived damaged."""
    duplicate: Count = 0
    """Second deliveries: dropped, and not counted elsewhere."""
    steps: Count = 0
    """Optimiser steps."""
    staleness: tuple[Count, ...] = ()
    """Staleness of each used gradient at its aggregation, in order."""
    queued: tuple[Count, ...] = ()
    """Gradients in the queue at each aggregation."""
    bound: Number | None = None
    """Bound on the mean staleness in the last update; None without a bound."""
    version: Count = 0
    """Version of the weights after the update: the optimiser's steps so far."""
    invoke_s: NonNegativeFloat = 0.0
    """Mean seconds of a used call from its request to the function's start."""
    fetch_s: NonNegativeFloat = 0.0
    compute_s: NonNegativeFloat = 0.0
    push_s: NonNegativeFloat = 0.0
    """From the end of the computation to the gradient's arrival."""
    aggregate_s: NonNegativeFloat = 0.0
    """Mean seconds of an aggregation: the mean, the step and publishing the weights."""
