"""Runs tasks on a function: each waits on the loop for its turn, then for its end.

Retries are explicit and bounded. A throttled invocation never ran, so it is retried for some
seconds, or until a function wakes up after idle weeks. A failed connection is retried as long as a
learner waits. A failed execution is repeated once, unless the environment is to blame, because a
rollout depends only on its task and its policy. A second failure is final. If its connection broke,
the task counts as vanished, because that says nothing about the actor.
"""

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal

from services.scaler.launching.execution import Execution, ExecutionKind
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.room import Room
from services.scaler.launching.tasks import R, T, TaskKind, TaskOutcome, event_of
from shared.cache.arrivals import FailureKind
from shared.contracts.rollouts import ActorReport, PingTask, RolloutTask
from shared.money.costs import EXECUTIONS_PER_TASK

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 3.0
_AT_ONCE = 16
"""Tasks that start before the loop yields: some 5 ms."""
_FINAL = frozenset({"throttled", "waking", "refused", "unreachable"})
"""Kinds of executions that are not repeated, because their retries are used up."""

RetryKind = Literal["failed", "unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """How long a launch waits for tasks, and the listener for retries."""

    until: float = math.inf
    """Deadline on `time.perf_counter`."""
    wanted: Callable[[], bool] = lambda: True
    """Whether anybody still waits."""
    on_retry: Callable[[RetryKind, str], None] = lambda _kind, _why: None
    """Called for every retry, with the reason."""

    def after(self, seconds: float) -> bool:
        """Whether the caller will still wait after this many seconds, as far as known."""
        return self.wanted() and time.perf_counter() + seconds < self.until


_ALWAYS = Awaited()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """How patient an invocation is."""

    throttled_s: float
    """How long to retry a throttled invocation."""
    first_pause_s: float
    timeout_s: float
    """Assumed duration of an execution with an unknown duration."""
    waking_tries: int = 30
    """How often to retry a waking function: Lambda takes about a minute."""
    waking_pause_s: float = 3.0


class Invoker(Generic[T, R]):
    """Runs one kind of tasks on one function, with bounded concurrency."""

    def __init__(
        self,
        function: LambdaFunction,
        rule: RetryRule,
        kind: TaskKind[T, R],
        room: Room,
        *,
        seed: int | None = None,
    ) -> None:
        self._function = function
        self._rule = rule
        self._kind: TaskKind[T, R] = kind
        self._random = random.Random(seed)
        self._room = room

    async def run(
        self,
        tasks: Iterable[T],
        on_outcome: Callable[[TaskOutcome[T, R]], Awaitable[None]],
        awaited: Awaited = _ALWAYS,
    ) -> None:
        """Run every task, reporting each end, in any order; return when all have ended.

        Tasks that have not started when the invoker closes are not reported. Exceptions, even from
        building a task, are raised when all started tasks have ended.
        """
        running: list[asyncio.Task[None]] = []
        try:
            for task in tasks:
                running.append(asyncio.ensure_future(self._run_one(task, on_outcome, awaited)))
                if len(running) % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            failures = await _failures(running)
        if failures:
            raise failures[0]

    async def ping(self, num: int, hold_s: float, on_end: Callable[[Execution], None]) -> None:
        """Ping this many environments at the same time, reporting each.

        Nothing is retried: the next ping comes soon.
        """
        payload = PingTask(hold_s=hold_s).model_dump_json().encode()
        pings = (self._ping_one(payload, on_end) for _ in range(num))
        for error in await _failures([asyncio.ensure_future(ping) for ping in pings]):
            _LOG.error("ping broke", exc_info=error)

    async def pause(self, seconds: float) -> bool:
        """Wait; return False, and at once, when the invoker is closed."""
        return await self._room.pause(seconds)

    async def close(self, *, wait_s: float) -> bool:
        """Drop unstarted tasks and wait for the rest; return whether all ended."""
        return await self._room.close(wait_s=wait_s)

    async def _run_one(
        self,
        task: T,
        on_outcome: Callable[[TaskOutcome[T, R]], Awaitable[None]],
        awaited: Awaited,
    ) -> None:
        async with self._room.place() as starts_in_s:
            if starts_in_s is None:
                return
            try:
                await self.pause(starts_in_s)
                await on_outcome(await self._outcome(task, awaited))
            except Exception:
                _LOG.exception("outcome lost", extra=self._kind.identity(task))

    async def _ping_one(self, payload: bytes, on_end: Callable[[Execution], None]) -> None:
        async with self._room.place() as starts_in_s:
            if starts_in_s is not None:
                on_end(await self._function.invoke(payload))

    async def _outcome(self, task: T, awaited: Awaited) -> TaskOutcome[T, R]:
        """Run a task to an end in any case: a round with an unended actor is never settled."""
        try:
            event = event_of(task)
        except ValueError as error:
            return TaskOutcome(task=task, reason=str(error))
        try:
            return await self._run(task, event, awaited)
        except Exception as error:
            _LOG.exception("invocation broke", extra=self._kind.identity(task))
            return TaskOutcome(
                task=task,
                reason=f"the invocation broke: {type(error).__name__}",
                billed_s=(self._rule.timeout_s,),  # its progress is unknown
                requests=1,
            )

    async def _run(self, task: T, event: bytes, awaited: Awaited) -> TaskOutcome[T, R]:
        outcome: TaskOutcome[T, R] = TaskOutcome(task=task)
        if not awaited.after(0.0):
            return replace(outcome, reason="nobody waited for it any more when its turn came")
        for tries_left in reversed(range(EXECUTIONS_PER_TASK)):
            execution, throttled = await self._execute(event, awaited)
            report, reason = self._kind.report(task, execution)
            outcome = replace(
                outcome,
                report=report,
                reason=reason,
                failure=self._failure(execution),
                billed_s=(*outcome.billed_s, *self._billed(execution, report)),
                requests=outcome.requests + execution.requests,
                throttled=outcome.throttled + throttled,
                sent_at=execution.sent_at if outcome.sent_at is None else outcome.sent_at,
            )
            if report is not None or execution.kind in _FINAL:
                break
            _LOG.info("task failed", extra={**self._kind.identity(task), "why": reason})
            if execution.failure != "lost":
                break  # the same seed would fail in the same way
            if tries_left:
                awaited.on_retry("failed", reason)
                if execution.kind == "broken":
                    # The closing server may be shutting down, and would close the next connection,
                    # too.
                    await self.pause(self._random.uniform(0.0, self._rule.first_pause_s))
        return outcome

    def _failure(self, execution: Execution) -> FailureKind:
        """Return the kind of failure; `vanished` if it had no chance to run or to report.

        That is so if its connection broke, or if a closing scaler gave it up.
        """
        given_up = execution.kind in ("throttled", "waking", "unreachable")
        vanished = execution.kind == "broken" or (given_up and self._room.closed)
        return "vanished" if vanished else execution.failure

    async def _execute(self, event: bytes, awaited: Awaited) -> tuple[Execution, int]:
        """Run once, when it can start; return the end and the number of throttles."""
        tries: Counter[ExecutionKind] = Counter()
        throttled_until = math.inf
        while True:
            execution = await self._function.invoke(event)
            tries[execution.kind] += 1
            if execution.kind == "throttled":
                now = time.monotonic()
                throttled_until = min(throttled_until, now + self._rule.throttled_s)
                left_s = throttled_until - now
            else:
                left_s = math.inf
            nth = tries[execution.kind]
            if not await self._waited_out(execution, nth, left_s, awaited):
                return execution, tries["throttled"]

    async def _waited_out(
        self, execution: Execution, nth: int, left_s: float, awaited: Awaited
    ) -> bool:
        """Wait before the nth retry of an execution that did not start; False if there is none.

        `left_s` is the remaining time for throttled retries.
        """
        rule = self._rule
        longest_s = min(rule.first_pause_s * 2 ** min(nth - 1, 16), _LONGEST_PAUSE_S)
        pause_s = self._random.uniform(0.0, longest_s)
        if execution.kind == "throttled":
            # With `Retry-After`, spread retries after that time, because others got the same
            # answer.
            pause_s = min(pause_s + execution.retry_after_s, left_s)
            return left_s > 0 and await self.pause(pause_s)
        if execution.kind == "waking":
            return nth <= rule.waking_tries and await self.pause(rule.waking_pause_s)
        if execution.kind != "unreachable" or not awaited.after(pause_s):
            return False
        # Without a connection nothing has started.
        awaited.on_retry("unreachable", execution.reason)
        return await self.pause(pause_s) and awaited.wanted()

    def _billed(self, execution: Execution, report: R | None) -> tuple[float, ...]:
        if not execution.requests:
            return ()
        if execution.billed_s is not None:
            return (execution.billed_s,)
        # Without Lambda's duration use the handler's, or else the time-out.
        return (self._rule.timeout_s if report is None else report.total_s,)


ActorInvoker = Invoker[RolloutTask, ActorReport]


async def _failures(running: Sequence[asyncio.Task[None]]) -> list[Exception]:
    """Wait for all and return their exceptions: a failure ends no other task."""
    ended = await asyncio.gather(*running, return_exceptions=True)
    return [error for error in ended if isinstance(error, Exception)]
