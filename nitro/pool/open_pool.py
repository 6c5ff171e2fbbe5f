"""A pool whose block was entered: its job, what makes its rounds, and how the job ends."""

from typing import Any

from nitro.errors import CommandError
from nitro.pool.connection import Connection
from nitro.pool.fragments import OverlappingFragments
from nitro.pool.round_calls import RoundCalls
from nitro.pool.rounds import SyncRounds
from nitro.pool.stopping import PoolStopped
from services.learner.scaler.client import ScalerError
from shared.contracts.jobs import JobStatus, StopReason
from shared.contracts.leases import FinishRequest

_COMPLETED: frozenset[StopReason] = frozenset({"max_rounds", "target_return"})
_LONGEST_ERROR = 4000


class OpenPool:
    """The job of a pool and its rounds; it can still be asked when the job has ended."""

    def __init__(self, connection: Connection) -> None:
        self._to = connection
        self.calls = RoundCalls(connection)
        self.rounds = SyncRounds(self.calls)
        self.fragments = OverlappingFragments(self.calls)
        self.is_complete = False
        """Whether the program made all rounds that it wanted."""
        self._final_usd: float | None = None

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self._to.job.job_id

    @property
    def cost_usd(self) -> float:
        """What the job was billed so far; after its end, in all."""
        if self._final_usd is not None:
            return self._final_usd
        return self._to.client.cost(self.job_id).settled_usd

    def finish(self, error: BaseException | None) -> None:
        """Tell the scaler that the job has ended, and why.

        Args:
            error: What ended the block, if anything did.

        Raises:
            CommandError: The scaler cannot be told, and nothing else went wrong.
        """
        if isinstance(error, PoolStopped):
            self.calls.stop, error = error.reason, None
        self._final_usd = 0.0
        if self._to.lease.lost:
            return  # the scaler has ended the job, or will
        status, reason = _outcome(error, self.calls.stop, is_complete=self.is_complete)
        request = FinishRequest(
            lease_id=self._to.lease.lease_id,
            status=status,
            stop_reason=reason,
            error=f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            if status == "failed"
            else None,
            final_evaluation=self.calls.final_evaluation,
        )
        try:
            self._to.scaler.finish(self.job_id, request)
            self._final_usd = self._to.client.cost(self.job_id).settled_usd
        except (ScalerError, CommandError):
            # The lease runs out by itself, and the scaler ends the job.
            if error is None:
                raise


def _outcome(
    error: BaseException | None, stop: StopReason | None, *, is_complete: bool
) -> tuple[Any, StopReason]:
    if error is not None and not isinstance(error, KeyboardInterrupt | GeneratorExit):
        return "failed", "error"
    if stop is None and is_complete and error is None:
        return "succeeded", "max_rounds"
    reason: StopReason = stop or "user"
    status: JobStatus = "succeeded" if reason in _COMPLETED else "stopped"
    return status, reason
