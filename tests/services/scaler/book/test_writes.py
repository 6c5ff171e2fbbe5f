"""Writes that are whole, however large, and by one scaler."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from services.scaler.book.book import Book
from services.scaler.book.table import Expected, Item, Key, StoreError, Table
from services.scaler.book.writes import FencedError
from tests.services.scaler.book.records import (
    OpenBook,
    ids,
    key,
    large_round,
    line,
    record,
    round_entry,
    write,
)


async def test_who_finds_another_writer_writes_nothing_more_and_says_so(
    open_book: OpenBook,
) -> None:
    book = open_book()
    await book.create(record("a"))
    await book.create(record("b"))
    other, fenced = open_book(), []
    other.on_fenced = lambda: fenced.append(True)
    await write(book, "a", status="running")
    with pytest.raises(FencedError):
        await write(other, "a", status="failed")
    assert (other.fenced, fenced) == (True, [True])
    with pytest.raises(FencedError):
        await write(other, "b")
    with pytest.raises(FencedError):
        await other.create(record("c"))
    with pytest.raises(FencedError):
        other.check()
    await write(book, "b", status="failed")
    assert ids(open_book().with_status({"running"})) == ["a"]


async def test_rounds_can_be_forgotten_from_one_on(book: Book) -> None:
    await book.create(record())
    await write(book, rounds=(round_entry(0, 1.0), round_entry(1, 2.0), round_entry(2, 3.0)))
    await write(book, forget_rounds_from=1, rounds=(round_entry(1, 7.0),))
    assert book.rounds("job", first=0, limit=9) == [round_entry(0, 1.0), round_entry(1, 7.0)]
    assert book.ratios("job", before=999, limit=9) == [1.0, 7.0]
    await write(book, forget_rounds_from=0)
    assert (book.last_round("job"), book.ratios("job", before=999, limit=9)) == (None, [])


class BrokenTable:
    """Stands before a table whose n-th write from now on, counted from 0, never reaches it."""

    def __init__(self, table: Table, *, call: int) -> None:
        self.__dict__.update({"get": table.get, "query": table.query, "run": table.run})
        self._table, self._calls, self._broken = table, itertools.count(), call

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        if next(self._calls) == self._broken:
            raise StoreError("the connection broke")
        self._table.write(puts, deletes, expect=expect)


@pytest.mark.parametrize("call", [0, 1, 2])
async def test_forgetting_more_rounds_than_a_write_holds_leaves_whole_ones_at_an_interruption(
    open_table: Callable[[], Table], open_book: OpenBook, call: int
) -> None:
    first = open_book()
    await first.create(record())
    rounds = [large_round(index) for index in range(54)]  # 216 items: two writes ahead
    for start in range(0, 54, 6):
        await write(first, rounds=rounds[start : start + 6])
    table: Any = BrokenTable(open_table(), call=call)
    book = Book(table, now=lambda: 7.0)
    with pytest.raises(StoreError, match="broke"):
        await write(book, rounds=(round_entry(3),), forget_rounds_from=3)
    left = book.rounds("job", first=0, limit=99)
    assert left == rounds[: len(left)]
    assert (len(left) < len(rounds)) == (call > 0)
    assert book.last_round("job") == left[-1]
    assert book.ratios("job", before=99, limit=99) == [entry.ratio for entry in left]
    await write(book, rounds=(round_entry(3),), forget_rounds_from=3)
    assert book.rounds("job", first=0, limit=99) == [*rounds[:3], round_entry(3)]


async def test_a_deletion_that_was_interrupted_leaves_what_a_repeat_removes(
    open_table: Callable[[], Table], open_book: OpenBook
) -> None:
    first = open_book()
    await first.create(record())
    await write(first, rounds=[round_entry(i, 1.0) for i in range(40)])
    await write(first, rounds=[round_entry(i, 1.0) for i in range(40, 80)], status="failed")
    table: Any = BrokenTable(open_table(), call=1)
    book = Book(table, now=lambda: 7.0)
    with pytest.raises(StoreError, match="broke"):
        await book.delete("job")
    assert book.job("job") is not None
    await book.delete("job")
    assert (book.job("job"), book.last_round("job")) == (None, None)
    assert book.rows(limit=9, before=None) == []


async def test_a_change_that_no_write_can_hold_is_refused_whole(book: Book) -> None:
    await book.create(record())
    with pytest.raises(StoreError, match="121 items exceeds 100"):
        await write(book, rounds=[round_entry(index, 1.0) for index in range(60)])
    assert book.last_round("job") is None
    assert (await write(book)).version == 1


async def test_deleting_a_job_leaves_nothing_of_it_and_all_of_the_others(book: Book) -> None:
    for job_id in ("a", "b"):
        await book.create(record(job_id), key(job_id, job_id))
        await write(
            book, job_id, rounds=[round_entry(i, 1.0) for i in range(30)], lines=[line(1.0)]
        )
    await book.delete("a")
    assert (book.job("a"), book.last_round("a"), book.idempotency("a")) == (None, None, None)
    assert (book.lines("a"), book.ratios("a", before=999, limit=9)) == ([], [])
    assert ids(book.with_status({"queued"})) == ["b"]
    assert book.lines("b") == [line(1.0)]
    assert len(book.rounds("b", first=0, limit=99)) == 30
    await book.create(record("a"), key("a", "a", "new"))
    assert (book.last_round("a"), book.lines("a")) == (None, [])
