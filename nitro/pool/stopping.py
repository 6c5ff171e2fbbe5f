"""Errors of a pool without a next round, or with a failed round."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from nitro.errors import EXIT_FAILED, CommandError
from services.learner.rounds.lost_round import RoundLostError
from services.learner.scaler.client import ScalerError
from shared.cache.connection import CacheError
from shared.contracts.jobs import StopReason


class PoolStopped(CommandError):  # noqa: N818 - not an error: the rounds are over
    """There is no next round.

    `ActorPool.rounds` ends its loop instead of raising it. `collect` and `stream` raise it;
    uncaught, it ends the pool's `with` block without an error.

    Attributes:
        reason: The job's stop reason: `budget`, `target_return`, `max_rounds`, `max_wall`, `user`
            or `client_gone`.
        job_id: The job of the pool.
    """

    def __init__(self, reason: StopReason, why: str, *, job_id: str) -> None:
        super().__init__(f"the pool has stopped ({reason}): {why}")
        self.reason = reason
        self.job_id = job_id
        self._why = why

    def __copy__(self) -> Self:  # RLlib's `train` raises a copy of the exception that ends it
        return type(self)(self.reason, self._why, job_id=self.job_id)


@contextmanager
def as_errors() -> Iterator[None]:
    """Re-raise the errors of a round with advice on what to do."""
    try:
        yield
    except (RoundLostError, ScalerError, CacheError) as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error
