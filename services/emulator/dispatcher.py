"""The dispatcher: queues invocations, assigns them to environments, and ends them.

Invocations wait in one queue, first come, first served, until an environment polls. The number in
flight (queued or running) never exceeds the concurrency limit: excess invocations are refused, and
second deliveries wait in a backlog. An accepted invocation ends exactly once: by its response, its
time-out, or the loss of its environment. A declined invocation is queued again.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from services.emulator.affinity import Affinity
from services.emulator.api.endpoint import throttled
from services.emulator.environments.environment import Environment, State
from services.emulator.faults import Faults
from services.emulator.invocation import (
    RESPONSE_LIMIT,
    Invocation,
    Outcome,
    function_error,
    log_tail,
)

_logger = logging.getLogger(__name__)
_MOST_DECLINES = 100
"""Most environments that may decline one invocation; more than there are with old code."""


class Dispatcher:
    """Matches invocations with environments."""

    def __init__(
        self,
        faults: Faults,
        *,
        concurrency_limit: int,
        timeout_s: float,
        memory_mb: int,
        idle_s: float | None = None,
    ) -> None:
        self._faults = faults
        self._idle_s = idle_s
        self._concurrency_limit = concurrency_limit
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._backlog: deque[Invocation] = deque()
        self._queue: deque[Invocation] = deque()
        self._idle: list[Environment] = []
        self._affinity = Affinity()
        self._running: dict[str, Environment] = {}
        self._accepted_at: dict[int, float] = {}
        self._closed = False
        self.counts: Counter[str] = Counter()
        self.kept = 0
        """Environments that never expire: provisioned concurrency."""
        self.on_demand: Callable[[], None] = lambda: None
        """Called if an invocation waits and no environment is idle."""

    @property
    def in_flight(self) -> int:
        """Number of accepted invocations that have not ended, without the backlog."""
        return len(self._accepted_at)

    @property
    def oldest_s(self) -> float:
        """Age of the oldest invocation in flight, since it was accepted; 0 without any."""
        # Dicts keep insertion order: the first accepted invocation comes first.
        first = next(iter(self._accepted_at.values()), None)
        return 0.0 if first is None else perf_counter() - first

    @property
    def queued(self) -> int:
        """Number of invocations that wait for an environment."""
        return len(self._queue)

    @property
    def backlog(self) -> int:
        """Number of second deliveries that wait for the concurrency limit."""
        return len(self._backlog)

    def submit(self, invocation: Invocation) -> None:
        """Accept an invocation.

        Raises:
            ServiceError: The concurrency limit is reached, or the throttle fault occurred.
        """
        if self._faults.throttles() or self.in_flight >= self._concurrency_limit:
            self.counts["throttled"] += 1
            raise throttled()
        self.counts["invoked"] += 1
        self._admit(invocation)

    def _admit(self, invocation: Invocation) -> None:
        if self.in_flight >= self._concurrency_limit:
            self._backlog.append(invocation)
            return
        self._accepted_at[id(invocation)] = perf_counter()
        delay_s = self._faults.start_delay_s
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._enqueue, invocation)
        else:
            self._enqueue(invocation)

    def _enqueue(self, invocation: Invocation) -> None:
        if self._closed:
            self._end(invocation, _shutdown(invocation))
            return
        invocation.arrived_at = perf_counter()
        self._queue.append(invocation)
        self._match()

    def _match(self) -> None:
        while self._queue and self._idle:
            invocation, environment = self._affinity.pair(self._queue, self._idle)
            environment.state, environment.invocation = State.BUSY, invocation
            if environment.poll is not None:
                environment.poll.set_result(invocation)
        if self._queue:
            self.on_demand()

    async def next_invocation(self, environment: Environment) -> Invocation | None:
        """Wait, without limit, for the environment's next invocation; it starts at the return.

        Returns:
            None if the environment is lost or the emulator shuts down.
        """
        loop = asyncio.get_running_loop()
        if self._closed or environment.state is State.LOST:
            return None
        if environment.ready_at is None:
            environment.ready_at = perf_counter()
        environment.state, environment.poll = State.IDLE, loop.create_future()
        self._idle.append(environment)
        self._match()
        poll = environment.poll
        self._watch_idle(environment, poll)
        invocation = await poll
        if invocation is None or environment.invocation is not invocation:
            return None  # lost since the assignment: the invocation is queued again
        environment.poll = None
        self._start(environment, invocation)
        return invocation

    def _watch_idle(
        self, environment: Environment, poll: "asyncio.Future[Invocation | None]"
    ) -> None:
        if self._idle_s is not None and not poll.done():
            loop = asyncio.get_running_loop()
            loop.call_later(self._idle_s, self._let_go, environment, poll)

    def _let_go(self, environment: Environment, poll: "asyncio.Future[Invocation | None]") -> None:
        if poll.done():
            return
        if len(self._idle) + len(self._running) <= self.kept:
            self._watch_idle(environment, poll)
            return
        self.counts["environments_let_go"] += 1
        environment.let_go = True
        self._retire(environment)
        environment.kill()

    def _start(self, environment: Environment, invocation: Invocation) -> None:
        loop = asyncio.get_running_loop()
        environment.settle_output()  # earlier output does not belong to this invocation
        invocation.started_at = perf_counter()
        if environment.served == 0 and invocation.arrived_at < (environment.ready_at or 0.0):
            self.counts["cold_starts"] += 1
            invocation.init_s = environment.init_s
        environment.served += 1
        invocation.output.clear()
        self._running[invocation.request_id] = environment
        invocation.timers.append(loop.call_later(self._timeout_s, self._time_out, environment))
        crash_delay_s = self._faults.crash_delay_s()
        if crash_delay_s == 0:
            self._crash(environment)  # before it gets the event: a fast function could finish
        elif crash_delay_s is not None:
            timer = loop.call_later(crash_delay_s, self._crash, environment)
            invocation.timers.append(timer)

    def _time_out(self, environment: Environment) -> None:
        invocation = environment.invocation
        if invocation is None:
            return
        self.counts["timeouts"] += 1
        message = f"Task timed out after {self._timeout_s:.2f} seconds"
        outcome = function_error("Sandbox.Timedout", message, request_id=invocation.request_id)
        self._finish(environment, outcome, note=f"{invocation.request_id} {message}\n\n")
        self._retire(environment)
        environment.kill()

    def _crash(self, environment: Environment) -> None:
        self.counts["crashes_on_purpose"] += 1
        environment.kill()

    def respond(self, request_id: str, payload: bytes | None, *, error_type: str | None) -> bool:
        """End a running invocation with its environment's response or error document.

        An oversized document has no payload; a response has no error type.

        Returns:
            False if no such invocation runs: it timed out, or never existed.
        """
        environment = self._running.get(request_id)
        if environment is None:
            return False
        if payload is None:
            outcome = function_error(
                "Function.ResponseSizeTooLarge",
                f"Response payload size exceeded maximum allowed payload size ({RESPONSE_LIMIT} "
                "bytes).",
                request_id=request_id,
            )
        else:
            outcome = Outcome(payload=payload, error_type=error_type)
        self._finish(environment, outcome)
        return True

    def _finish(self, environment: Environment, outcome: Outcome, *, note: str = "") -> None:
        invocation = environment.invocation
        if invocation is None:
            return
        environment.settle_output()
        environment.invocation = None
        del self._running[invocation.request_id]
        if invocation.wants_log or _logger.isEnabledFor(logging.DEBUG):
            tail = log_tail(
                invocation,
                outcome,
                duration_s=perf_counter() - invocation.started_at,
                memory_mb=self._memory_mb,
                max_memory_mb=environment.max_memory_mb(),
                note=note,
            )
            _logger.debug("%s: %s", environment.name, tail.decode(errors="replace"))
            outcome = replace(outcome, log_tail=tail)
        self._end(invocation, outcome)

    def _end(self, invocation: Invocation, outcome: Outcome) -> None:
        for timer in invocation.timers:
            timer.cancel()
        del self._accepted_at[id(invocation)]
        self.counts["function_errors" if outcome.error_type else "succeeded"] += 1
        if invocation.outcome is not None and not invocation.outcome.done():
            invocation.outcome.set_result(outcome)
        self._deliver_again(invocation)
        while self._backlog and self.in_flight < self._concurrency_limit:
            self._admit(self._backlog.popleft())

    def _deliver_again(self, invocation: Invocation) -> None:
        if not (self._closed or invocation.duplicate) and self._faults.duplicates():
            self.counts["duplicates"] += 1
            self._backlog.append(invocation.again())

    def _retire(self, environment: Environment) -> None:
        environment.state = State.LOST
        if environment in self._idle:
            self._idle.remove(environment)
        if environment.poll is not None and not environment.poll.done():
            environment.poll.set_result(None)

    def environment_lost(self, environment: Environment, reason: str) -> None:
        """End a lost environment's running invocation; one that had not started is queued again.

        A declined invocation is queued again, too. The reason has Lambda's wording, such as "exit
        status 1". A repeated call does nothing.
        """
        invocation = environment.invocation
        self._retire(environment)
        if invocation is None:
            return
        started = invocation.request_id in self._running
        if started and environment.declined and invocation.declined < _MOST_DECLINES:
            invocation.declined += 1
            del self._running[invocation.request_id]
            while invocation.timers:
                invocation.timers.pop().cancel()
            started = False
        if not started:
            environment.invocation = None
            self._queue.appendleft(invocation)
            self._match()
            return
        self.counts["environments_lost"] += 1
        how = f"with error: {reason}" if reason else "without providing a reason"
        message = f"Runtime exited {how}"
        request_id = invocation.request_id
        outcome = function_error("Runtime.ExitError", message, request_id=request_id)
        note = f"RequestId: {request_id} Error: {message}\nRuntime.ExitError\n"
        self._finish(environment, outcome, note=note)

    def poll_lost(self, environment: Environment) -> bool:
        """Give up an environment whose connection closed, if it has an open poll.

        A poll is open until its invocation starts. An invocation that was only assigned goes to the
        next environment.

        Returns:
            Whether the environment was given up. Without an open poll, the end of its process will
            report the loss.
        """
        if environment.poll is None or environment.state is State.LOST:
            return False
        self.environment_lost(environment, "connection closed")
        return True

    def fail_queued(self, outcome: Outcome) -> None:
        """End all waiting invocations: the function cannot be initialised."""
        waiting, self._queue = self._queue, deque()
        for invocation in waiting:
            self._end(invocation, outcome)

    def close(self) -> None:
        """Refuse waiting and new invocations; running ones end with their environment."""
        self._closed = True
        self._backlog.clear()
        for invocation in list(self._queue):
            self._end(invocation, _shutdown(invocation))
        self._queue.clear()


def _shutdown(invocation: Invocation) -> Outcome:
    return function_error(
        "Runtime.ExitError", "the emulator shuts down", request_id=invocation.request_id
    )
