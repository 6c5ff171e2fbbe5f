"""Flights that the book refuses: booked again, each for itself, until it takes them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

import pytest

from services.scaler.book.attempts import AttemptKey
from services.scaler.book.table import StoreError
from services.scaler.launching.flights import Flight, Flights
from services.scaler.launching.invoker import Awaited, Invoker
from services.scaler.launching.tasks import TaskOutcome
from shared.contracts.gradients import GradientCall, GradientReport, GradientTask
from tests.services.scaler.services_without_network import do, forget_tasks, settle
from tests.services.scaler.simulated_job import Told

ONE = AttemptKey("one", 0, 0, "lease")
OTHER = AttemptKey("other", 0, 0, "lease")
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
        self.ends: list[Told[GradientTask, GradientReport]] = []
        self._over = asyncio.Semaphore(0)
        self._open = True

    async def run(
        self,
        tasks: Iterable[GradientTask],
        on_outcome: Callable[[TaskOutcome[GradientTask, GradientReport]], Awaitable[None]],
        awaited: Awaited | None = None,
    ) -> None:
        ends = [Told(on_outcome) for _ in tasks]
        self.ends += ends
        await asyncio.gather(*(end.heard() for end in ends), return_exceptions=True)

    async def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        await self._over.acquire()
        return self._open

    def end_pauses(self, number: int) -> None:
        """End the next pauses."""
        for _ in range(number):
            self._over.release()
        settle()

    def end_process(self) -> None:
        """End the next pause because the process ends."""
        self._open = False
        self.end_pauses(1)


async def nobody(_flight: object, _outcome: object) -> None:
    """Is told, and does nothing."""


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
            self.clock, on_ended=nobody, book=self.write
        )

    async def write(self, flight: Flight[GradientTask, GradientReport]) -> None:
        self.tried.append(flight.key)
        if self.refusals.get(flight.key, 0):
            self.refusals[flight.key] -= 1
            raise self.error
        self.booked.append(flight.key)

    def land(self, *keys: AttemptKey) -> None:
        """Let flights land, of which nothing was launched."""
        for key in keys:
            self.flights.expect(key, 0, closed=True)
            do(self.flights.catch_up(key[0]))

    def launch(self, flight: Flight[GradientTask, GradientReport], number: int) -> None:
        launch(self.flights, flight, number)

    def landed(self, job_id: str) -> bool:
        return do(self.flights.wait_landed(job_id, timeout_s=0.0))


def launch(
    flights: Flights[GradientTask, GradientReport],
    flight: Flight[GradientTask, GradientReport],
    number: int,
) -> None:
    async def begin() -> None:
        flights.launch(flight, lambda: [TASK] * number, num_tasks=number, until=1.0)

    do(begin())


@pytest.fixture
def rig() -> Iterator[Rig]:
    yield Rig()
    forget_tasks()


def test_a_flight_is_booked_once_when_no_more_is_to_come_and_all_of_it_has_ended(rig: Rig) -> None:
    flight = rig.flights.expect(ONE, 2, closed=False)
    rig.launch(flight, 2)
    for end in rig.clock.ends:
        end.tell(TaskOutcome(task=TASK))
    settle()
    assert (rig.booked, rig.flights.in_flight()) == ([], 0)
    assert rig.flights.expect(ONE, 1, closed=False) is flight
    rig.launch(flight, 1)
    flight.closed = True
    assert (rig.booked, rig.flights.in_flight(only="one")) == ([], 1)
    assert not rig.landed("one")
    rig.clock.ends[-1].tell(TaskOutcome(task=TASK))
    settle()
    do(rig.flights.catch_up("one"))
    assert (rig.booked, rig.flights.get(ONE), rig.clock.pauses) == ([ONE], None, [])
    assert rig.landed("one")


def test_an_outcome_counts_though_whoever_is_told_of_it_fails() -> None:
    clock, booked = Clockwork(), list[AttemptKey]()

    async def fail(_flight: object, _outcome: object) -> None:
        raise KeyError("a surprise")

    async def book(flight: Flight[GradientTask, GradientReport]) -> None:
        booked.append(flight.key)

    flights: Flights[GradientTask, GradientReport] = Flights(clock, on_ended=fail, book=book)
    flight = flights.expect(ONE, 1, closed=True)
    launch(flights, flight, 1)
    clock.ends[0].tell(TaskOutcome(task=TASK))
    settle()
    assert (booked, flights.in_flight(), flights.get(ONE)) == ([ONE], 0, None)


def test_a_launch_that_breaks_is_told_with_its_reason_costs_nothing_and_is_booked() -> None:
    told, booked = list[TaskOutcome[GradientTask, GradientReport]](), list[AttemptKey]()

    async def tell(_flight: object, outcome: TaskOutcome[GradientTask, GradientReport]) -> None:
        told.append(outcome)

    async def book(flight: Flight[GradientTask, GradientReport]) -> None:
        booked.append(flight.key)

    def tasks() -> Iterator[GradientTask]:
        yield TASK
        raise KeyError("a surprise")

    flights: Flights[GradientTask, GradientReport] = Flights(Clockwork(), on_ended=tell, book=book)
    flight = flights.expect(ONE, 3, closed=True)

    async def begin() -> None:
        flights.launch(flight, tasks, num_tasks=3, until=1.0)

    do(begin())
    (outcome,) = told
    assert (outcome.task, outcome.requests, outcome.billed_s) == (TASK, 0, ())
    assert "KeyError" in outcome.reason
    assert (booked, flights.in_flight(), flights.get(ONE)) == ([ONE], 0, None)


def test_what_was_never_launched_is_booked_as_a_flight_of_nothing(rig: Rig) -> None:
    flying = rig.flights.expect(OTHER, 1, closed=True)
    rig.flights.close_unlaunched([ONE, OTHER, ONE])
    do(rig.flights.catch_up("one"))
    do(rig.flights.catch_up("other"))
    assert rig.booked == [ONE]
    assert rig.flights.get(OTHER) is flying


@pytest.mark.parametrize("error", [StoreError("throttled"), KeyError("a surprise")])
def test_a_refused_flight_is_booked_after_pauses_that_grow_to_a_bound(
    rig: Rig, error: Exception
) -> None:
    rig.error = error
    rig.refusals[ONE] = 12
    rig.land(ONE)
    for _ in range(12):
        rig.clock.end_pauses(1)
    assert rig.booked == [ONE]
    assert len(rig.tried) == 13
    assert rig.clock.pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert rig.clock.pauses[-2:] == [10.0, 10.0]
    do(rig.flights.catch_up("one"))
    assert len(rig.tried) == 13


def test_the_jobs_next_plan_does_not_wait_for_the_pause(rig: Rig) -> None:
    rig.refusals = {ONE: 1, OTHER: 1}
    rig.land(ONE, OTHER)
    assert len(rig.clock.pauses) == 1
    assert rig.landed("one"), "it has landed all the same"
    do(rig.flights.catch_up("one"))
    assert rig.booked == [ONE]
    rig.clock.end_pauses(1)
    assert rig.booked == [ONE, OTHER]


def test_one_that_is_never_taken_holds_up_no_other(rig: Rig) -> None:
    rig.refusals = {ONE: 1000, OTHER: 2}
    rig.land(ONE, OTHER)
    rig.clock.end_pauses(1)
    rig.clock.end_pauses(1)
    assert len(rig.clock.pauses) == 3
    assert rig.booked == [OTHER]


def test_the_end_of_the_process_ends_the_pause_with_a_last_try(rig: Rig) -> None:
    rig.refusals[ONE] = 1
    rig.land(ONE)
    rig.clock.end_process()
    assert rig.booked == [ONE]
    assert do(rig.flights.finish(wait_s=10.0))
    rig.refusals[OTHER] = 9
    rig.clock.end_process()
    rig.land(OTHER)
    assert rig.booked == [ONE]
    assert len(rig.clock.pauses) == 2
