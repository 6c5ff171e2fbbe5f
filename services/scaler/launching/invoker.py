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
from typing import Generic, Literal, TypeVar

from pydantic import ValidationError

from services.scaler.launching.in_use import InUse
from services.scaler.launching.lambda_function import Execution, ExecutionKind, LambdaFunction
from shared.cache.arrivals import FailureKind
from shared.contracts.gradients import GradientReport, GradientTask
from shared.contracts.message import Message
from shared.contracts.rollouts import ActorReport, PingTask, RolloutTask
from shared.money.costs import EXECUTIONS_PER_TASK

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 3.0
_KEPT_S = 300.0
"""How long Lambda usually keeps an idle environment at least."""
MAX_EVENT_BYTES = 4096
_AT_ONCE = 16
"""Tasks that start before the loop yields: some 5 ms."""
_FINAL = frozenset({"throttled", "waking", "refused", "unreachable"})
"""Kinds of executions that are not repeated, because their retries are used up."""

RetryKind = Literal["failed", "unreachable"]
T = TypeVar("T", bound=Message)
R = TypeVar("R", bound=ActorReport | GradientReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind(Generic[T, R]):
    """The tasks and reports of one function."""

    read: Callable[[bytes], R]
    """Reads a report; raises `ValidationError`."""
    identity: Callable[[T], dict[str, object]]
    """Names a task, for logs."""
    asked: Callable[[T], tuple[object, ...]]
    """Identity of a task."""
    answered: Callable[[R], tuple[object, ...]]
    """Identity of a report."""


ROLLOUTS: TaskKind[RolloutTask, ActorReport] = TaskKind(
    read=ActorReport.read,
    identity=lambda task: {
        "job": task.job_id,
        "round": task.round,
        "attempt": task.attempt,
        "actor": task.actor_index,
        "mode": task.mode,
    },
    asked=lambda task: (task.job_id, task.round, task.actor_index, task.mode),
    answered=lambda report: (report.job_id, report.round, report.actor_index, report.mode),
)
"""Calls of actors."""
GRADIENTS: TaskKind[GradientTask, GradientReport] = TaskKind(
    read=GradientReport.read,
    identity=lambda task: {
        "job": task.job_id,
        "round": task.round,
        "request": task.request,
        "call": task.call.call,
    },
    asked=lambda task: (task.job_id, task.round, task.call.call),
    answered=lambda report: (report.job_id, report.round, report.call),
)
"""Calls of learner functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome(Generic[T, R]):
    """How one task ended, after all retries."""

    task: T
    report: R | None = None
    """None if it failed for good."""
    reason: str = ""
    """Why it failed."""
    failure: FailureKind = "lost"
    """The kind of its failure, if any."""
    billed_s: tuple[float, ...] = ()
    """Duration of each execution that was billed."""
    requests: int = 0
    throttled: int = 0
    """Answers 429."""
    sent_at: float | None = None
    """`time.perf_counter` when the first request was ready; None without one."""


RolloutOutcome = TaskOutcome[RolloutTask, ActorReport]
GradientOutcome = TaskOutcome[GradientTask, GradientReport]


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
        *,
        most: int,
        limit: Callable[[], int | None] = lambda: None,
        cold_starts_per_s: float = math.inf,
        seed: int | None = None,
    ) -> None:
        """Run nothing yet.

        `most` are in flight at a time, and no more than the account's `limit` as last seen: more
        would only be throttled. Environments of a subnet share one network interface, which loses
        connections when too many open at once: no more than `cold_starts_per_s` are started.
        """
        self._function = function
        self._rule = rule
        self._kind: TaskKind[T, R] = kind
        self._most = most
        self._limit = limit
        self._random = random.Random(seed)
        self._closing = asyncio.Event()
        self._room = asyncio.Condition()
        """Notified when a task has ended."""
        self._running = 0
        self._in_use = InUse()
        self._start_every_s = 1 / cold_starts_per_s
        self._next_start_at = -math.inf

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
        if seconds > 0 and not self._closing.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
            except TimeoutError:
                return True
        return not self._closing.is_set()

    async def close(self, *, wait_s: float) -> bool:
        """Drop unstarted tasks and wait for the rest; return whether all ended."""
        self._closing.set()
        async with self._room:
            self._room.notify_all()
            try:
                async with asyncio.timeout(wait_s):
                    await self._room.wait_for(lambda: self._running == 0)
            except TimeoutError:
                pass
            return self._running == 0

    async def _run_one(
        self,
        task: T,
        on_outcome: Callable[[TaskOutcome[T, R]], Awaitable[None]],
        awaited: Awaited,
    ) -> None:
        starts_in_s = await self._begin()
        if starts_in_s is None:
            return
        try:
            await self.pause(starts_in_s)
            await on_outcome(await self._outcome(task, awaited))
        except Exception:
            _LOG.exception("outcome lost", extra=self._kind.identity(task))
        finally:
            await self._end()

    async def _ping_one(self, payload: bytes, on_end: Callable[[Execution], None]) -> None:
        if await self._begin() is None:
            return
        try:
            on_end(await self._function.invoke(payload))
        finally:
            await self._end()

    async def _begin(self) -> float | None:
        """Wait for room within the limit; return the seconds until the start, None for never."""
        async with self._room:
            await self._room.wait_for(lambda: self._closing.is_set() or self._has_room())
            if self._closing.is_set():
                return None
            self._running += 1
            if self._has_room():
                # Each waiter wakes the next, so a thousand waiters need not all check at every end.
                self._room.notify()
            now = time.monotonic()
            starts_at = self._starts_at(now)
            self._in_use.note(self._running, now)
            return starts_at - now

    async def _end(self) -> None:
        self._running -= 1
        async with self._room:
            if self._closing.is_set():
                self._room.notify_all()
            else:
                self._room.notify()

    def _starts_at(self, now: float) -> float:
        """Return the start time: now, unless a new environment has to start first."""
        if now - self._in_use.last(self._running) < _KEPT_S:
            return now
        starts_at = max(now, self._next_start_at)
        self._next_start_at = starts_at + self._start_every_s
        return starts_at

    def _has_room(self) -> bool:
        limit = self._limit()
        return self._running < self._most and (limit is None or self._running < max(1, limit))

    async def _outcome(self, task: T, awaited: Awaited) -> TaskOutcome[T, R]:
        """Run a task to an end in any case: a round with an unended actor is never settled."""
        try:
            event = _event(task)
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
            report, reason = self._read_report(task, execution)
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
        vanished = execution.kind == "broken" or (given_up and self._closing.is_set())
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

    def _read_report(self, task: T, execution: Execution) -> tuple[R | None, str]:
        if execution.kind != "done":
            return None, execution.reason
        kind = self._kind
        try:
            report = kind.read(execution.payload)
        except ValidationError as error:
            return None, f"its reply is no report: {error.error_count()} fields are wrong"
        wanted, got = kind.asked(task), kind.answered(report)
        if wanted != got:
            return None, f"its reply is about {got}, not {wanted}"
        return report, ""


ActorInvoker = Invoker[RolloutTask, ActorReport]


async def _failures(running: Sequence[asyncio.Task[None]]) -> list[Exception]:
    """Wait for all and return their exceptions: a failure ends no other task."""
    ended = await asyncio.gather(*running, return_exceptions=True)
    return [error for error in ended if isinstance(error, Exception)]


def _event(task: Message) -> bytes:
    payload = task.model_dump_json().encode()
    if len(payload) > MAX_EVENT_BYTES:
        raise ValueError(
            f"its event has {len(payload)} bytes, at most {MAX_EVENT_BYTES} fit; "
            "shorten env_kwargs, wrappers or env_variables"
        )
    return payload
