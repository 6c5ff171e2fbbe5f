"""An open pool: its job, the loop of its rounds, and the job's end."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nitro.errors import CommandError
from nitro.pool.connection import Connection
from nitro.pool.fragments import OverlappingFragments
from nitro.pool.policy import Policy
from nitro.pool.round_calls import RoundCalls
from nitro.pool.rounds import SyncRounds
from nitro.pool.stopping import PoolStopped, as_errors
from services.learner.scaler.client import LeaseLostError
from shared.contracts.jobs import JobStatus, StopReason
from shared.contracts.leases import FinishRequest

_COMPLETED: frozenset[StopReason] = frozenset({"max_rounds", "max_env_steps", "target_return"})
_LONGEST_ERROR = 4000


class OpenPool:
    """A pool's job and its rounds; still readable after the job's end."""

    def __init__(self, connection: Connection) -> None:
        self._to = connection
        self.calls = RoundCalls(connection)
        self.rounds = SyncRounds(self.calls)
        self.fragments = OverlappingFragments(self.calls)
        self.is_complete = False
        """Whether the program finished all its rounds."""
        self._is_over = False
        self._known_usd = 0.0
        """The job's bill at the last request."""

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self._to.job.job_id

    @property
    def cost_usd(self) -> float:
        """The job's bill so far; after its end the final bill, or the last known one."""
        if not self._is_over:
            self._known_usd = self._to.client.cost(self.job_id).settled_usd
        return max(self._known_usd, self.calls.spent_usd)

    def stopped_by(self, error: BaseException | None) -> PoolStopped | None:
        """Return the error if it is the end of this pool's rounds, not of another's."""
        if isinstance(error, PoolStopped) and error.job_id == self.job_id:
            return error
        return None

    def finish(self, error: BaseException | None, *, newest: Callable[[], Policy | None]) -> None:
        """Report the last round's result, and the job's end with its reason, to the scaler.

        Args:
            error: The error that ended the block, if any.
            newest: Returns the program's current policy.

        Raises:
            CommandError: The last round cannot be ended, or the scaler cannot be reached, and there
                is no other error.
        """
        stopped = self.stopped_by(error)
        if stopped is not None:
            self.calls.stop, error = stopped.reason, None
        failure = None
        if error is None and stopped is None:
            failure = self._end_rounds(newest)
        try:
            if not self._to.lease.lost:  # otherwise the scaler ends the job itself
                self._tell_end(error or failure)
        except CommandError:
            # The lease expires, and then the scaler ends the job.
            if error is None:
                raise
        finally:
            with suppress(CommandError):
                self._known_usd = self._to.client.cost(self.job_id).settled_usd
            self._is_over = True
        if failure is not None:
            raise failure

    def _end_rounds(self, newest: Callable[[], Policy | None]) -> CommandError | None:
        """End the round whose batch the program has, with the final evaluation.

        Returns:
            The error, if there was one.
        """
        if not self.rounds.is_open or self.calls.stop is not None or self._to.lease.lost:
            return None
        ours: StopReason = "max_rounds" if self.is_complete else "user"
        try:
            with as_errors():
                self.rounds.end(newest(), ours)
        except PoolStopped as stopped:
            self.calls.stop = stopped.reason
        except CommandError as error:
            return error
        else:
            if self.calls.stop == ours:
                self.calls.stop = None  # the loop itself ended
        return None

    def _tell_end(self, error: BaseException | None) -> None:
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
        with as_errors(), suppress(LeaseLostError):  # it has ended already
            self._to.scaler.finish(self.job_id, request)


def _outcome(
    error: BaseException | None, stop: StopReason | None, *, is_complete: bool
) -> tuple[Any, StopReason]:
    # The end of another pool is not an error of this one.
    quiet = KeyboardInterrupt | GeneratorExit | PoolStopped
    leaves = isinstance(error, SystemExit) and not error.code
    if error is not None and not leaves and not isinstance(error, quiet):
        return "failed", "error"
    if stop is None and is_complete and error is None:
        return "succeeded", "max_rounds"
    reason: StopReason = stop or "user"
    status: JobStatus = "succeeded" if reason in _COMPLETED else "stopped"
    return status, reason
