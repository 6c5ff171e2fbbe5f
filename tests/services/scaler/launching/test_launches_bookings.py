"""Outcomes that the store refuses: booked again, each for itself, until it takes them."""

import threading

import pytest

from services.scaler.book.records import AttemptKey, LaunchOutcome
from services.scaler.book.table import StoreError
from services.scaler.launching.launches import Bookings
from services.scaler.money.ledger import NOTHING_LAUNCHED

ONE: AttemptKey = ("one", 0, 0, "lease")
OTHER: AttemptKey = ("other", 0, 0, "lease")


class Book:
    """A store's side, and the clock of the pauses; the test says when a pause is over."""

    def __init__(self) -> None:
        self.refusals: dict[AttemptKey, int] = {}
        """How often each is still refused."""
        self.error: Exception = StoreError("throttled")
        self.tried: list[AttemptKey] = []
        self.booked: list[AttemptKey] = []
        self.pauses: list[float] = []
        self._changed = threading.Condition()
        self._over = threading.Semaphore(0)
        self._open = True

    def write(self, key: AttemptKey, outcome: LaunchOutcome) -> None:
        assert outcome is NOTHING_LAUNCHED
        with self._changed:
            self.tried.append(key)
            if self.refusals.get(key, 0):
                self.refusals[key] -= 1
                raise self.error
            self.booked.append(key)

    def pause(self, seconds: float) -> bool:
        with self._changed:
            self.pauses.append(seconds)
            self._changed.notify_all()
        assert self._over.acquire(timeout=10)
        return self._open

    def end_pauses(self, number: int) -> None:
        """End the next pauses."""
        self._over.release(number)

    def close(self) -> None:
        """End the next pause because the process ends."""
        self._open = False
        self.end_pauses(1)

    def wait_pauses(self, number: int) -> None:
        """Wait until so many pauses have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.pauses) >= number, 10)


def end_of_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "bookings":
            thread.join(10)
            assert not thread.is_alive()


def test_an_outcome_the_store_takes_is_booked_at_once_and_once() -> None:
    book = Book()
    bookings = Bookings(book.write, book.pause)
    bookings.add(ONE, NOTHING_LAUNCHED)
    bookings.catch_up("one")
    assert (book.tried, book.pauses) == ([ONE], [])


@pytest.mark.parametrize("error", [StoreError("throttled"), KeyError("a surprise")])
def test_a_refused_outcome_is_booked_after_pauses_that_grow_to_a_bound(error: Exception) -> None:
    book = Book()
    book.error = error
    book.refusals[ONE] = 12
    bookings = Bookings(book.write, book.pause)
    book.end_pauses(12)
    bookings.add(ONE, NOTHING_LAUNCHED)
    end_of_thread()
    assert book.booked == [ONE]
    assert len(book.tried) == 13
    assert book.pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert book.pauses[-2:] == [10.0, 10.0]
    bookings.catch_up("one")
    assert len(book.tried) == 13


def test_the_jobs_next_plan_does_not_wait_for_the_pause() -> None:
    book = Book()
    book.refusals = {ONE: 1, OTHER: 1}
    bookings = Bookings(book.write, book.pause)
    for key in (ONE, OTHER):
        bookings.add(key, NOTHING_LAUNCHED)
    book.wait_pauses(1)
    bookings.catch_up("one")
    assert book.booked == [ONE]
    book.end_pauses(1)
    end_of_thread()
    assert book.booked == [ONE, OTHER]


def test_one_that_is_never_taken_holds_up_no_other() -> None:
    book = Book()
    book.refusals = {ONE: 1000, OTHER: 2}
    bookings = Bookings(book.write, book.pause)
    for key in (ONE, OTHER):
        bookings.add(key, NOTHING_LAUNCHED)
    book.end_pauses(2)
    book.wait_pauses(3)
    assert book.booked == [OTHER]
    book.close()
    end_of_thread()


def test_the_end_of_the_process_ends_the_pause_with_a_last_try() -> None:
    book = Book()
    book.refusals[ONE] = 1
    bookings = Bookings(book.write, book.pause)
    bookings.add(ONE, NOTHING_LAUNCHED)
    book.wait_pauses(1)
    book.close()
    end_of_thread()
    assert book.booked == [ONE]
    book.refusals[OTHER] = 9
    book.close()
    bookings.add(OTHER, NOTHING_LAUNCHED)
    end_of_thread()
    assert book.booked == [ONE]
    assert len(book.pauses) == 2


def test_an_outcome_that_the_next_plan_books_in_the_middle_of_a_try_ends_no_other() -> None:
    book = Book()
    book.refusals = {ONE: 1}

    def write(key: AttemptKey, outcome: LaunchOutcome) -> None:
        book.write(key, outcome)
        if book.booked == [ONE]:
            bookings.catch_up("one")

    bookings = Bookings(write, book.pause)
    book.end_pauses(1)
    bookings.add(ONE, NOTHING_LAUNCHED)
    end_of_thread()
    assert book.booked == [ONE, ONE]
    book.refusals[OTHER] = 1
    book.end_pauses(1)
    bookings.add(OTHER, NOTHING_LAUNCHED)
    end_of_thread()
    assert book.booked == [ONE, ONE, OTHER]
