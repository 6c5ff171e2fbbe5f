"""What is launched and not booked yet, of rollouts and of gradients alike.

A flight is what was launched under one key. It has landed when no more is to come and all of it has
ended. Then it is booked: what became of it is written into the job's record. An outcome is heard of
once; one that is dropped would leave its worst case reserved for ever. So a flight is forgotten
only when it is booked, however often the book refuses it. It is tried again with the job's next
change, and after pauses while the process lives.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.scaler.book.records import AttemptKey
from services.scaler.book.table import StoreError
from services.scaler.launching.invoker import Awaited, Invoker, RetryKind, TaskOutcome
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
    """Whether no more are to come."""
    wanted: bool = True
    """Whether a learner may still wait for it."""
    told: bool = True
    """Whether its failures are told to whoever waits."""
    decided_at: float = field(default_factory=time.perf_counter)
    ended: list[tuple[TaskOutcome[T, R], float]] = field(default_factory=list)
    """Each with when it ended, on the clock `time.perf_counter`."""
    retries: dict[RetryKind, int] = field(default_factory=lambda: {"failed": 0, "unreachable": 0})
    """Tries that were followed by another one."""
    latest_failure: str = ""
    """Why the latest try failed."""
    booking: bool = False
    """Whether somebody is about to book it."""
    refused: bool = False
    """Whether the book did not take it when it was last tried."""

    @property
    def in_flight(self) -> int:
        """Tasks that have not ended."""
        return self.num_tasks - len(self.ended)

    @property
    def landed(self) -> bool:
        """Whether all is known of it."""
        return self.closed and not self.in_flight

    def retried(self, kind: RetryKind, why: str) -> None:
        """Note a try that is followed by another one."""
        self.retries[kind] += 1
        self.latest_failure = why


class Flights(Generic[T, R]):
    """All flights of one kind. Thread-safe."""

    def __init__(
        self,
        invoker: Invoker[T, R],
        *,
        on_ended: Callable[[Flight[T, R], TaskOutcome[T, R]], None],
        book: Callable[[Flight[T, R]], None],
    ) -> None:
        """Launch nothing yet.

        Args:
            invoker: Runs the tasks.
            on_ended: Told of every task that ended, before it counts as ended.
            book: Writes what became of a flight that has landed; harmless to repeat.
        """
        self._invoker = invoker
        self._on_ended = on_ended
        self._book = book
        self.changed = threading.Condition()
        self._flights: dict[AttemptKey, Flight[T, R]] = {}
        self._trying = False

    def get(self, key: AttemptKey) -> Flight[T, R] | None:
        """Return a flight that is not booked."""
        return self._flights.get(key)

    def of(self, job_id: str) -> list[Flight[T, R]]:
        """Return the flights of a job that are not booked."""
        with self.changed:
            return [flight for key, flight in self._flights.items() if key[0] == job_id]

    def expect(self, key: AttemptKey, num_tasks: int, *, closed: bool) -> Flight[T, R]:
        """Count tasks as in flight from the moment they are decided; begin a flight if need be."""
        with self.changed:
            flight = self._flights.setdefault(key, Flight(key=key))
            flight.num_tasks += num_tasks
            flight.closed = closed
        return flight

    def launch(self, flight: Flight[T, R], tasks: Sequence[T], *, until: float) -> None:
        """Run tasks that are expected, as long as they are wanted, and until a time."""
        awaited = Awaited(until=until, wanted=lambda: flight.wanted, on_retry=flight.retried)
        self._invoker.submit(tasks, lambda outcome: self._end(flight, outcome), awaited)

    def close(self, flights: Iterable[Flight[T, R]]) -> None:
        """Let no more tasks into flights, and book those that have landed."""
        for flight in flights:
            with self.changed:
                flight.closed = True
            self._land(flight)

    def land_unlaunched(self, keys: Iterable[AttemptKey]) -> None:
        """Book what was planned and is not in flight as what it is: a flight of nothing.

        Nobody may launch any of it meanwhile, and none of it may be booked already.
        """
        self.close([self.expect(key, 0, closed=True) for key in keys if self.get(key) is None])

    def catch_up(self, job_id: str) -> None:
        """Book what has landed of a job and was refused."""
        for flight in self.of(job_id):
            if flight.refused:
                self._land(flight)

    def in_flight(self, *, but: str | None = None, only: str | None = None) -> int:
        """Return tasks under way: of all jobs, of all `but` one, or of `only` one."""
        with self.changed:
            return sum(
                flight.in_flight
                for (job_id, *_), flight in self._flights.items()
                if job_id != but and only in (None, job_id)
            )

    def wait_landed(self, job_id: str, *, timeout_s: float) -> bool:
        """Wait until nothing of a job is in flight or about to be booked; return whether it is."""
        with self.changed:
            return self.changed.wait_for(
                lambda: all(f.refused for key, f in self._flights.items() if key[0] == job_id),
                timeout_s,
            )

    def _end(self, flight: Flight[T, R], outcome: TaskOutcome[T, R]) -> None:
        try:
            self._on_ended(flight, outcome)
        finally:
            with self.changed:
                flight.ended.append((outcome, time.perf_counter()))
                flight.latest_failure = outcome.reason or flight.latest_failure
            self._land(flight)

    def _land(self, flight: Flight[T, R]) -> None:
        """Book a flight if it has landed; once more and again where that fails."""
        if self._booked(flight) or not flight.refused:
            return
        with self.changed:
            if self._trying:
                return
            self._trying = True
        threading.Thread(target=self._try_again, name="bookings", daemon=True).start()

    def _booked(self, flight: Flight[T, R]) -> bool:
        """Book a flight that has landed and nobody else books; return whether it was taken."""
        with self.changed:
            if not flight.landed or flight.booking or flight.key not in self._flights:
                return False
            flight.booking = True
        try:
            self._book(flight)
        except Exception as error:
            # Whatever went wrong: an outcome that is dropped here is lost.
            job_id, round_index, attempt, _ = flight.key
            _LOG.warning(
                "outcome not booked yet",
                extra={"job": job_id, "round": round_index, "attempt": attempt, "why": str(error)},
                exc_info=None if isinstance(error, StoreError) else error,
            )
            flight.refused = True
        else:
            with self.changed:
                del self._flights[flight.key]
            flight.refused = False
        with self.changed:
            flight.booking = False
            self.changed.notify_all()
        return not flight.refused

    def _try_again(self) -> None:
        """Book what was refused, one try after another, until nothing is."""
        pause_s = _FIRST_PAUSE_S
        while True:
            closing = not self._invoker.pause(pause_s)
            with self.changed:
                refused = [flight for flight in self._flights.values() if flight.refused]
            for flight in refused:
                self._booked(flight)
            with self.changed:
                if closing or not any(flight.refused for flight in self._flights.values()):
                    self._trying = False
                    return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
