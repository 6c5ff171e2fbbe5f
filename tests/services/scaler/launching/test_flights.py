"""Flights that the book refuses: booked again, each for itself, until it takes them."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from services.scaler.book.records import AttemptKey
from services.scaler.book.table import StoreError
from services.scaler.launching.flights import Flight, Flights
from services.scaler.launching.invoker import Awaited, Invoker, TaskOutcome
from shared.contracts.gradients import GradientCall, GradientReport, GradientTask

ONE: AttemptKey = ("one", 0, 0, "lease")
OTHER: AttemptKey = ("other", 0, 0, "lease")
TASK = GradientTask(
    job_id="one",
    round=0,
    request=0,
    lease_hash="h",
    call=GradientCall(call=0, base=0),
    deadline_at=1.0,
)


class Clockwork(Invoker[GradientTask, GradientReport]):
    """Tasks and pauses that end when the test says so."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.tell: list[Callable[[TaskOutcome[GradientTask, GradientReport]], None]] = []
        self.changed = threading.Condition()
        self._over = threading.Semaphore(0)
        self._open = True

    def submit(
        self,
        tasks: Sequence[GradientTask],
        on_outcome: Callable[[TaskOutcome[GradientTask, GradientReport]], None],
        awaited: Awaited | None = None,
    ) -> None:
        self.tell += [on_outcome] * len(tasks)

    def pause(self, seconds: float) -> bool:
        with self.changed:
            self.pauses.append(seconds)
            self.changed.notify_all()
        assert self._over.acquire(timeout=10)
        return self._open

    def end_pauses(self, number: int) -> None:
        """End the next pauses."""
        self._over.release(number)

    def close(self, *, wait_s: float = 0.0) -> bool:
        """End the next pause because the process ends."""
        self._open = False
        self.end_pauses(1)
        return True

    def wait_pauses(self, number: int) -> None:
        """Wait until so many pauses have begun."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.pauses) >= number, 10)


class Rig:
    """Flights, and a book that refuses some of them."""

    def __init__(self) -> None:
        self.clock = Clockwork()
        self.refusals: dict[AttemptKey, int] = {}
        """How often each is still refused."""
        self.error: Exception = StoreError("throttled")
        self.tried: list[AttemptKey] = []
        self.booked: list[AttemptKey] = []
        self.flights: Flights[GradientTask, GradientReport] = Flights(
            self.clock, on_ended=lambda _flight, _outcome: None, book=self.write
        )

    def write(self, flight: Flight[GradientTask, GradientReport]) -> None:
        self.tried.append(flight.key)
        if self.refusals.get(flight.key, 0):
            self.refusals[flight.key] -= 1
            raise self.error
        self.booked.append(flight.key)

    def land(self, *keys: AttemptKey) -> None:
        """Let flights land, of which nothing was launched."""
        self.flights.close([self.flights.expect(key, 0, closed=True) for key in keys])


@pytest.fixture
def rig() -> Iterator[Rig]:
    yield Rig()
    end_of_thread()


def end_of_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "bookings":
            thread.join(10)
            assert not thread.is_alive()


def test_a_flight_is_booked_once_when_no_more_is_to_come_and_all_of_it_has_ended(rig: Rig) -> None:
    flight = rig.flights.expect(ONE, 2, closed=False)
    rig.flights.launch(flight, [TASK, TASK], until=1.0)
    for tell in rig.clock.tell:
        tell(TaskOutcome(task=TASK))
    assert (rig.booked, rig.flights.in_flight()) == ([], 0)
    assert rig.flights.expect(ONE, 1, closed=False) is flight
    rig.flights.launch(flight, [TASK], until=1.0)
    rig.flights.close([flight])
    assert (rig.booked, rig.flights.in_flight(only="one")) == ([], 1)
    assert not rig.flights.wait_landed("one", timeout_s=0.0)
    rig.clock.tell[-1](TaskOutcome(task=TASK))
    rig.flights.close([flight])
    assert (rig.booked, rig.flights.get(ONE), rig.clock.pauses) == ([ONE], None, [])
    assert rig.flights.wait_landed("one", timeout_s=0.0)


def test_an_outcome_counts_though_whoever_is_told_of_it_fails() -> None:
    clock, booked = Clockwork(), list[AttemptKey]()

    def fail(_flight: object, _outcome: object) -> None:
        raise KeyError("a surprise")

    flights: Flights[GradientTask, GradientReport] = Flights(
        clock, on_ended=fail, book=lambda flight: booked.append(flight.key)
    )
    flight = flights.expect(ONE, 1, closed=True)
    flights.launch(flight, [TASK], until=1.0)
    with pytest.raises(KeyError, match="a surprise"):
        clock.tell[0](TaskOutcome(task=TASK))
    assert (booked, flights.in_flight(), flights.get(ONE)) == ([ONE], 0, None)


def test_what_was_never_launched_is_booked_as_a_flight_of_nothing(rig: Rig) -> None:
    flying = rig.flights.expect(OTHER, 1, closed=True)
    rig.flights.land_unlaunched([ONE, OTHER, ONE])
    assert rig.booked == [ONE]
    assert rig.flights.get(OTHER) is flying


@pytest.mark.parametrize("error", [StoreError("throttled"), KeyError("a surprise")])
def test_a_refused_flight_is_booked_after_pauses_that_grow_to_a_bound(
    rig: Rig, error: Exception
) -> None:
    rig.error = error
    rig.refusals[ONE] = 12
    rig.clock.end_pauses(12)
    rig.land(ONE)
    end_of_thread()
    assert rig.booked == [ONE]
    assert len(rig.tried) == 13
    assert rig.clock.pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert rig.clock.pauses[-2:] == [10.0, 10.0]
    rig.flights.catch_up("one")
    assert len(rig.tried) == 13


def test_the_jobs_next_plan_does_not_wait_for_the_pause(rig: Rig) -> None:
    rig.refusals = {ONE: 1, OTHER: 1}
    rig.land(ONE, OTHER)
    rig.clock.wait_pauses(1)
    assert rig.flights.wait_landed("one", timeout_s=0.0), "it has landed all the same"
    rig.flights.catch_up("one")
    assert rig.booked == [ONE]
    rig.clock.end_pauses(1)
    end_of_thread()
    assert rig.booked == [ONE, OTHER]


def test_one_that_is_never_taken_holds_up_no_other(rig: Rig) -> None:
    rig.refusals = {ONE: 1000, OTHER: 2}
    rig.land(ONE, OTHER)
    rig.clock.end_pauses(2)
    rig.clock.wait_pauses(3)
    assert rig.booked == [OTHER]
    rig.clock.close()


def test_the_end_of_the_process_ends_the_pause_with_a_last_try(rig: Rig) -> None:
    rig.refusals[ONE] = 1
    rig.land(ONE)
    rig.clock.wait_pauses(1)
    rig.clock.close()
    end_of_thread()
    assert rig.booked == [ONE]
    rig.refusals[OTHER] = 9
    rig.clock.close()
    rig.land(OTHER)
    end_of_thread()
    assert rig.booked == [ONE]
    assert len(rig.clock.pauses) == 2
