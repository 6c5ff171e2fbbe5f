"""The checkpoints that a job keeps, and the earlier one that it may start from."""

from typing import Literal

from shared.contracts.message import JobId, Message, PositiveInt

Which = Literal["newest", "best"]
"""`best` has the highest mean return of the job's evaluations; on a tie it is the newest."""


class CheckpointRule(Message):
    """A checkpoint is written after every round; this sets how many are kept."""

    keep: PositiveInt = 3
    """Number of newest checkpoints to keep, in addition to the one with the best evaluation."""


class InitialPolicy(Message):
    """An earlier job from whose policy a new job starts, instead of random weights."""

    job_id: JobId
    """The earlier job. Rewards, arguments of the environment, algorithm and number of actors may
    differ; observations, actions and network must have the same sizes.
    """
    checkpoint: Which = "newest"
    """Which policy: `newest`, or `best` for the one with the best evaluation."""
    optimiser: bool = False
    """Whether to load the moments of the optimiser, too."""
