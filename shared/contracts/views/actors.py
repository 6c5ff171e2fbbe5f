"""The actors of a round, with the stages of each."""

from typing import Literal

from shared.contracts.message import Count, JobId, Message, NonNegativeFloat, Number

ActorState = Literal["running", "stored", "duplicate", "late", "cancelled", "failed"]


class ActorLane(Message):
    """One invocation, retries included. Seconds count from the decision about the round."""

    index: Count
    mode: Literal["sample", "evaluate"]
    attempt: Count
    state: ActorState
    sent_s: NonNegativeFloat | None = None
    """Time when its first request was ready; None before."""
    ended_s: NonNegativeFloat | None = None
    """Time when its end was reported; None while it runs."""
    cold_start: bool = False
    tries: Count = 0
    """Executions that were billed."""
    reason: str = ""
    """Why it, or its latest attempt, failed."""
    start_s: NonNegativeFloat | None = None
    """From the request to the handler and back: queue, network, start of an environment."""
    fetch_s: NonNegativeFloat | None = None
    """Fetching policy and episodes, and building environments."""
    rollout_s: NonNegativeFloat | None = None
    push_s: NonNegativeFloat | None = None
    """Storing the result in the cache."""
    steps: Count = 0
    episode_return: Number | None = None
    """Mean of the episodes that ended in it."""


class ActorLanes(Message):
    """The actors of a round."""

    job_id: JobId
    round: Count
    rounds_kept: tuple[Count, Count] | None = None
    """First and last round with known actors; None without any."""
    decided_at: Number | None = None
    """Unix seconds; None if the round is no longer known."""
    total: Count = 0
    actors: tuple[ActorLane, ...] = ()
