"""Flights: launched rollouts and gradients that are not booked yet.

A flight has all tasks launched under one key. It has landed when it is closed and all tasks have
ended. Then it is booked: its outcome is written into the job's record. An outcome is reported only
once; losing it would leave its worst case reserved for ever. So a flight is dropped only when it is
booked, however often the book refuses. Booking is retried with the job's next plan, and after
pauses.

One asyncio task runs each launch: it invokes all tasks, reports their ends, and books.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from services.scaler.book.attempts import AttemptKey
from services.scaler.book.bell import Bell
from services.scaler.book.table import StoreError
from services.scaler.launching.invoker import Awaited, Invoker, RetryKind
from services.scaler.launching.tasks import TaskOutcome
from shared.contracts.gradients import GradientReport
from shared.contracts.message import Message
from shared.contracts.rollouts import ActorReport

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
T = TypeVar("T", bound=Message)
R = TypeVar("R", bound=ActorReport | GradientReport)


@dataclass(slots=True, kw_only=True, eq=False)
class Flight(Generic[T, R]):
    """Tasks that were launched under a key, as they end."""

    key: AttemptKey
    num_tasks: int = 0
    """Expected so far."""
    closed: bool = False
    """Whether it is closed to further tasks."""
    wanted: bool = True
    """Whether a learner may still wait for it and needs reports of failures."""
    decided_at: float = field(default_factory=time.perf_counter)
    ended: list[tuple[TaskOutcome[T, R], float]] = field(default_factory=list)
    """Each with its end, on the clock `time.perf_counter`."""
    retries: dict[RetryKind, int] = field(default_factory=lambda: {"failed": 0, "unreachable": 0})
    """Retries."""
    latest_failure: str = ""
    """Why the latest attempt failed."""
    booking: bool = False
    """Whether it is being booked."""
    refused: bool = False
    """Whether the book refused it at the last attempt."""

    @property
    def in_flight(self) -> int:
        """Unfinished tasks."""
        return self.num_tasks - len(self.ended)

    @property
    def landed(self) -> bool:
        """Whether it has landed."""
        return self.closed and not self.in_flight

    def retried(self, kind: RetryKind, why: str) -> None:
        """Note a retry."""
        self.retries[kind] += 1
        self.latest_failure = why


class Flights(Generic[T, R]):
    """All flights of one kind."""

    def __init__(
        self,
        invoker: Invoker[T, R],
        *,
        on_ended: Callable[[Flight[T, R], TaskOutcome[T, R]], Awaitable[None]],
        book: Callable[[Flight[T, R]], Awaitable[None]],
    ) -> None:
        """Launch nothing yet.

        Args:
            invoker: Runs the tasks.
            on_ended: Called for every ended task, before it counts as ended.
            book: Writes the outcome of a landed flight; harmless to repeat.
        """
        self._invoker = invoker
        self._on_ended = on_ended
        self._book = book
        self._changed = Bell()
        """Rings when the book has accepted or refused a flight."""
        self._flights: dict[AttemptKey, Flight[T, R]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of launches and of repeated bookings."""
        self._trying = False

    def get(self, key: AttemptKey) -> Flight[T, R] | None:
        """Return an unbooked flight."""
        return self._flights.get(key)

    def of(self, job_id: str) -> list[Flight[T, R]]:
        """Return a job's unbooked flights."""
        return [flight for flight in [*self._flights.values()] if flight.key.job_id == job_id]

    def expect(self, key: AttemptKey, num_tasks: int, *, closed: bool) -> Flight[T, R]:
        """Count tasks as in flight from their decision; begin a flight if needed."""
        flight = self._flights.setdefault(key, Flight(key=key))
        flight.num_tasks += num_tasks
        flight.closed = closed
        return flight

    def launch(
        self,
        flight: Flight[T, R],
        tasks: Callable[[], Iterable[T]],
        *,
        num_tasks: int,
        until: float,
    ) -> None:
        """Run expected tasks while they are wanted, until a deadline.

        They are built when the loop runs them, so the caller answers first. On any error each
        counts as ended; otherwise its money would stay reserved.
        """
        awaited = Awaited(until=until, wanted=lambda: flight.wanted, on_retry=flight.retried)
        self.begin(self._fly(flight, tasks, num_tasks, awaited))

    def close_unlaunched(self, keys: Iterable[AttemptKey]) -> None:
        """Turn a plan that was never launched into an empty flight.

        It must not be launched meanwhile nor be booked already. `catch_up` books it.
        """
        for key in keys:
            if self.get(key) is None:
                self.expect(key, 0, closed=True)

    async def catch_up(self, job_id: str) -> None:
        """Book a job's landed flights, including refused ones."""
        for flight in self.of(job_id):
            await self._land(flight)

    def in_flight(self, *, but: str | None = None, only: str | None = None) -> int:
        """Return the number of running tasks: of all jobs, of all `but` one, or of `only` one."""
        return sum(
            flight.in_flight
            for key, flight in [*self._flights.items()]
            if key.job_id != but and only in (None, key.job_id)
        )

    async def wait_landed(self, job_id: str, *, timeout_s: float) -> bool:
        """Wait until a job has nothing in flight or unbooked; return whether that holds."""
        give_up_at = time.monotonic() + timeout_s
        while True:
            rung = self._changed.listen()
            if all(flight.refused for flight in self.of(job_id)):
                return True
            if not await self._changed.heard(rung, give_up_at - time.monotonic()):
                return False

    async def finish(self, *, wait_s: float) -> bool:
        """Wait until all landed flights are booked or refused again; return whether so."""
        give_up_at = time.monotonic() + wait_s
        while self._tasks and (left_s := give_up_at - time.monotonic()) > 0:
            await asyncio.wait([*self._tasks], timeout=left_s)
        return not self._tasks

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin work that `finish` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a flight's task broke", exc_info=error)

    async def _fly(
        self,
        flight: Flight[T, R],
        tasks: Callable[[], Iterable[T]],
        num_tasks: int,
        awaited: Awaited,
    ) -> None:
        made: list[T] = []

        def making() -> Iterator[T]:
            for task in tasks():
                made.append(task)
                yield task

        try:
            await self._invoker.run(making(), partial(self._end, flight), awaited)
        except Exception as error:
            _LOG.exception("launch broke", extra=flight.key.log_fields)
            await self._give_up(flight, made, f"the launch broke: {type(error).__name__}: {error}")
            # Tasks that could not be built have no names to report.
            flight.num_tasks -= num_tasks - len(made)
        await self._land(flight)

    async def _give_up(self, flight: Flight[T, R], made: Iterable[T], reason: str) -> None:
        """End a launch's unfinished tasks at no cost; nothing of it runs any more."""
        flight.latest_failure = reason
        ended = {id(outcome.task) for outcome, _ in flight.ended}
        for task in made:
            if id(task) not in ended:
                try:
                    await self._end(flight, TaskOutcome(task=task, reason=reason))
                except Exception:
                    _LOG.exception("outcome not told", extra={"job": flight.key.job_id})

    async def _end(self, flight: Flight[T, R], outcome: TaskOutcome[T, R]) -> None:
        try:
            await self._on_ended(flight, outcome)
        finally:
            flight.ended.append((outcome, time.perf_counter()))
            flight.latest_failure = outcome.reason or flight.latest_failure

    async def _land(self, flight: Flight[T, R]) -> None:
        """Book a flight if it has landed, with retries."""
        if not flight.landed or flight.booking or flight.key not in self._flights:
            return
        await self._try_to_book(flight)
        if flight.refused and not self._trying:
            self._trying = True
            self.begin(self._try_again())

    async def _try_to_book(self, flight: Flight[T, R]) -> None:
        flight.booking = True
        try:
            await self._book(flight)
        except Exception as error:
            # Catch everything: a dropped outcome is lost.
            _LOG.warning(
                "outcome not booked yet",
                extra={**flight.key.log_fields, "why": str(error)},
                exc_info=None if isinstance(error, StoreError) else error,
            )
            flight.refused = True
        else:
            del self._flights[flight.key]
            flight.refused = False
        finally:
            flight.booking = False
            self._changed.ring()

    async def _try_again(self) -> None:
        """Retry refused bookings until none is left."""
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                open_still = await self._invoker.pause(pause_s)
                for flight in [*self._flights.values()]:
                    if flight.refused and not flight.booking:
                        await self._try_to_book(flight)
                if not open_still or not any(flight.refused for flight in self._flights.values()):
                    return
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            self._trying = False
