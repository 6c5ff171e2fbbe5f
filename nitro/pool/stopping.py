"""The end of a pool's rounds, as an exception for whoever asks for one more."""

from typing import Self

from nitro.errors import CommandError
from shared.contracts.jobs import StopReason


class PoolStopped(CommandError):  # noqa: N818 - not an error: the rounds are over
    """There is no next round.

    `ActorPool.rounds` ends its loop instead of raising it. Raised by `collect` and `stream`; where
    nobody catches it, it ends the pool's `with` block and goes no further.

    Attributes:
        reason: Why, as the job has it: `budget`, `target_return`, `max_rounds`, `max_wall`, `user`
            or `client_gone`.
    """

    def __init__(self, reason: StopReason, why: str) -> None:
        super().__init__(f"the pool has stopped ({reason}): {why}")
        self.reason = reason
        self._why = why

    def __copy__(self) -> Self:  # RLlib's `train` raises a copy of what it is ended by
        return type(self)(self.reason, self._why)
