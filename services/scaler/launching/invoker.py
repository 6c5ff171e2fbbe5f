"""Running tasks on a function: each waits on the loop for its turn, and then for its end.

Retries are ours, and bounded. A throttled invocation never ran, so it is tried again for some
seconds, and one of a function that wakes after idle weeks until that is awake. One that found no
connection is tried again as long as somebody waits for it. A failed one is issued once more, unless
the environment is to blame: a rollout depends on its task and its policy alone. What fails after
that has failed for good, or vanished if its connection broke: that says nothing of the actor.
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
"""How long Lambda keeps an idle environment, at least in most cases."""
MAX_EVENT_BYTES = 4096
_AT_ONCE = 16
"""Tasks that are made and begin before the loop turns to other work: some 5 ms."""
_FINAL = frozenset({"throttled", "waking", "refused", "unreachable"})
"""Kinds of executions that are not issued again: the patience they get is used up."""

RetryKind = Literal["failed", "unreachable"]
T = TypeVar("T", bound=Message)
R = TypeVar("R", bound=ActorReport | GradientReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind(Generic[T, R]):
    """What the tasks of one function are, and what it answers."""

    read: Callable[[bytes], R]
    """Reads a report; raises `ValidationError`."""
    identity: Callable[[T], dict[str, object]]
    """Names a task, for logs."""
    asked: Callable[[T], tuple[object, ...]]
    """What a task is about."""
    answered: Callable[[R], tuple[object, ...]]
    """The same of a report."""


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
"""What actors do."""
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
"""What learner functions do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome(Generic[T, R]):
    """How one task ended, after all retries."""

    task: T
    report: R | None = None
    """None when it failed for good."""
    reason: str = ""
    """Why it failed."""
    failure: FailureKind = "lost"
    """How it failed, where it did."""
    billed_s: tuple[float, ...] = ()
    """Duration of each execution that was billed."""
    requests: int = 0
    throttled: int = 0
    """Answers 429."""
    sent_at: float | None = None
    """`time.perf_counter` when the first request was ready to go out; None when none was."""


RolloutOutcome = TaskOutcome[RolloutTask, ActorReport]
GradientOutcome = TaskOutcome[GradientTask, GradientReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """For how long tasks are waited for, and who hears of tries that failed."""

    until: float = math.inf
    """`time.perf_counter` after which nobody waits any more."""
    wanted: Callable[[], bool] = lambda: True
    """Whether anybody still waits."""
    on_retry: Callable[[RetryKind, str], None] = lambda _kind, _why: None
    """Told of every try that is followed by another one, and why it failed."""

    def after(self, seconds: float) -> bool:
        """Whether somebody still waits in so many seconds, as far as is known now."""
        return self.wanted() and time.perf_counter() + seconds < self.until


_ALWAYS = Awaited()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """How patient an invocation is."""

    throttled_s: float
    """How long a throttled invocation is tried again."""
    first_pause_s: float
    timeout_s: float
    """Duration assumed for an execution whose own is unknown."""
    waking_tries: int = 30
    """How often a function that wakes is tried again: Lambda takes about a minute."""
    waking_pause_s: float = 3.0


class Invoker(Generic[T, R]):
    """Runs one kind of tasks on one function, so many at a time."""

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
        """Notified when one has ended."""
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
        """Run every task, telling of each as it ends, in any order; return when all have.

        What has not started when the invoker is closed is not told of. Whatever raises, be it the
        making of a task, does so when all that began have ended.
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
        """Hold so many environments for a moment, all at a time, telling of each.

        Nothing is tried again: the next ping comes soon.
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
        """Drop what has not started, wait for the rest; return whether all of it ended."""
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
        """Wait for room within the limit; return in how many seconds to start, None for never."""
        async with self._room:
            await self._room.wait_for(lambda: self._closing.is_set() or self._has_room())
            if self._closing.is_set():
                return None
            self._running += 1
            if self._has_room():
                # One wakes the next: a thousand that wait need not all look at every end.
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
        """Return when to start: now, unless an environment has to be started for it first."""
        if now - self._in_use.last(self._running) < _KEPT_S:
            return now
        starts_at = max(now, self._next_start_at)
        self._next_start_at = starts_at + self._start_every_s
        return starts_at

    def _has_room(self) -> bool:
        limit = self._limit()
        return self._running < self._most and (limit is None or self._running < max(1, limit))

    async def _outcome(self, task: T, awaited: Awaited) -> TaskOutcome[T, R]:
        """Run a task whatever happens: a round whose actors do not all end is never settled."""
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
                billed_s=(self._rule.timeout_s,),  # nobody knows how far it came
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
                break  # the same seed would come to the same end
            if tries_left:
                awaited.on_retry("failed", reason)
                if execution.kind == "broken":
                    # Whoever closed it may be ending, and would close the next one, too.
                    await self.pause(self._random.uniform(0.0, self._rule.first_pause_s))
        return outcome

    def _failure(self, execution: Execution) -> FailureKind:
        """Return how it failed; it vanished if it had no chance to say why, or to run.

        The first when its connection broke, the second when a closing scaler gave it up.
        """
        given_up = execution.kind in ("throttled", "waking", "unreachable")
        vanished = execution.kind == "broken" or (given_up and self._closing.is_set())
        return "vanished" if vanished else execution.failure

    async def _execute(self, event: bytes, awaited: Awaited) -> tuple[Execution, int]:
        """Run once, when it can start; return how it ended and how often it was throttled."""
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
        """Wait out what kept an execution from starting, the nth time; False if nothing does.

        `left_s` is how much longer a throttled one is tried.
        """
        rule = self._rule
        longest_s = min(rule.first_pause_s * 2 ** min(nth - 1, 16), _LONGEST_PAUSE_S)
        pause_s = self._random.uniform(0.0, longest_s)
        if execution.kind == "throttled":
            # Whoever is told to come later starts somewhere after that: the others are told, too.
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
        # Without Lambda's own number the handler's comes next, and the time-out last.
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
    """Wait for all, and return what they raised: one that fails ends no other."""
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
