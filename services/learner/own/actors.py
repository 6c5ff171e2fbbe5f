"""Actor processes on the learner's own cores, and their queue of tasks.

An actor runs in the process that had its index before, which may still have its environment. An
idle process takes rollouts of others, unless that would repeat an episode.

A process that ends or hangs loses only an attempt of its task: it is replaced, and the task is
retried, like a function's.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from services.learner.own.process import OwnActorLostError, OwnProcess
from shared.cache.arrivals import FAILURE_KINDS, FailureKind
from shared.cache.connect_token import AwsCredentials
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.money.costs import EXECUTIONS_PER_TASK

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.05
"""Poll interval for the end of killed processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOutcome:
    """How a task ended."""

    task: RolloutTask
    report: ActorReport | None = None
    """None if it failed for good."""
    reason: str = ""
    failure: FailureKind = "lost"
    error: str = ""
    """Name of the exception, if any."""
    lost: int = 0
    """Attempts without a result."""
    began_at: float
    """`time.monotonic`, as of its last attempt."""
    ended_at: float


@dataclass(frozen=True, slots=True)
class _Waiting:
    task: RolloutTask
    limit_s: float
    on_end: Callable[[OwnOutcome], object]


class OwnActors:
    """A pool of actor processes; a context manager.

    Args:
        num: Number of processes.
        variables: Their settings, beyond this process's own environment.
        credentials: Return AWS credentials for the cache; None where it needs none.
    """

    def __init__(
        self,
        num: int,
        *,
        variables: Mapping[str, str],
        credentials: Callable[[], AwsCredentials] | None = None,
    ) -> None:
        self.num = num
        """Number of busy processes."""
        self.most = num
        self._changed = threading.Condition()
        self._queues: list[deque[_Waiting]] = [deque() for _ in range(num)]
        self._busy: set[int] = set()
        self._era = 0
        """Number of times that all tasks were dropped."""
        self._closed = False
        self._processes = [OwnProcess(variables, credentials) for _ in range(num)]
        self._threads = [
            threading.Thread(target=self._work, args=(at,), name=f"own-actor-{at}", daemon=True)
            for at in range(num)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the running processes."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def submit(
        self,
        tasks: Sequence[RolloutTask],
        on_end: Callable[[OwnOutcome], object],
        *,
        limit_s: float,
    ) -> None:
        """Queue these tasks after the waiting ones.

        Args:
            tasks: What to do.
            on_end: Called with each end, in the thread of a process.
            limit_s: Time limit of an attempt.
        """
        with self._changed:
            for task in tasks:
                queue = self._queues[task.actor_index % self.num]
                queue.append(_Waiting(task, limit_s, on_end))
            self._changed.notify_all()

    def drop(self) -> None:
        """Drop all tasks without a report, and end the running ones."""
        with self._changed:
            self._era += 1
            for queue in self._queues:
                queue.clear()
            while self._busy:
                for at in self._busy:
                    self._processes[at].kill()
                self._changed.wait(_LOOK_S)

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.drop()
        for thread in self._threads:
            thread.join()

    def _work(self, at: int) -> None:
        process = self._processes[at]
        process.start()
        while (taken := self._take(at)) is not None:
            waiting, era = taken
            outcome = self._done(process, waiting, era)
            with self._changed:
                self._busy.discard(at)
                self._changed.notify_all()
                wanted = self._era == era
            if wanted:
                try:
                    waiting.on_end(outcome)
                except Exception:
                    _LOG.exception("end of an own actor's task not told")
        process.end()

    def _take(self, at: int) -> tuple[_Waiting, int] | None:
        """Wait for a task; None after the close."""
        with self._changed:
            while not self._closed:
                waiting = self._next(at)
                if waiting is not None:
                    self._busy.add(at)
                    return waiting, self._era
                self._changed.wait()
        return None

    def _next(self, at: int) -> _Waiting | None:
        if at >= self.num:
            return None
        if self._queues[at]:
            return self._queues[at].popleft()
        longest = max(self._queues, key=len)
        if longest and not longest[-1].task.replay_steps:
            return longest.pop()
        return None

    def _done(self, process: OwnProcess, waiting: _Waiting, era: int) -> OwnOutcome:
        task, lost, reason, error = waiting.task, 0, "", ""
        failure: FailureKind = "lost"
        began_at = time.monotonic()
        while lost < EXECUTIONS_PER_TASK and self._era == era:
            began_at = time.monotonic()
            try:
                reply = process.run(task, limit_s=waiting.limit_s)
            except OwnActorLostError as ended:
                failure, reason, error = "lost", str(ended), ""
            except Exception as broken:  # no process, no credentials
                failure, reason, error = "lost", str(broken), type(broken).__name__
            else:
                if reply.report is not None:
                    return OwnOutcome(
                        task=task,
                        report=reply.report,
                        lost=lost,
                        began_at=began_at,
                        ended_at=time.monotonic(),
                    )
                failure = FAILURE_KINDS.get(reply.error, "lost")
                reason, error = f"{reply.error}: {reply.reason}", reply.error
            lost += 1
            _LOG.info(
                "own actor failed",
                extra={"job": task.job_id, "actor": task.actor_index, "why": reason},
            )
            if failure != "lost":
                break  # the same seed would fail in the same way
        return OwnOutcome(
            task=task,
            reason=reason,
            failure=failure,
            error=error,
            lost=lost,
            began_at=began_at,
            ended_at=time.monotonic(),
        )
