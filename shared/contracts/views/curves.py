"""A job's rounds as columns, for its curves."""

from shared.contracts.jobs import StopReason
from shared.contracts.message import Count, JobId, Message, NonNegativeFloat, Number

Column = tuple[Number | int | None, ...]
"""A value for each round; None if missing."""


class Ending(Message):
    """The plan that ended a job; it sampled nothing and is not a round."""

    round: Count
    stop: StopReason
    reason: str
    spent_usd: NonNegativeFloat
    cost: dict[str, NonNegativeFloat]
    """Dollars that became final with this plan, by item of the bill."""
    eval_return: Number | None = None
    """Mean of the final evaluation."""
    eval_min: Number | None = None
    eval_max: Number | None = None
    eval_episodes: Count = 0


class Curves(Message):
    """A stretch of a job's rounds, in order; all columns are equally long."""

    job_id: JobId
    generation: Count
    """Number of returns to an earlier round; data with a lower number is void."""
    num_rounds: Count
    """Rounds of the whole job."""
    next_after: int
    """Last round of the stretch that can no longer change."""
    more: bool
    """Whether there are rounds after these."""
    columns: dict[str, Column]
    """All columns, empty without a round. `spent_usd` is the bill before the round was planned, so
    it includes the round's own cost from the next round on.
    """
    cost: dict[str, tuple[NonNegativeFloat, ...]]
    """Dollars that became final with each round's plan, by item of the bill."""
    stats: dict[str, Column]
    """Scalars of the updates, by name."""
    ending: Ending | None = None
    """Set after the last round of a job that a plan has ended."""
