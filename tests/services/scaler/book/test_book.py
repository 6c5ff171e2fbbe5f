"""The book by what it promises: whole changes, one writer a job, nothing lost on reopening."""

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Expected, Item, Key, StoreError, Table
from shared.contracts.views.jobs import JobSummary
from tests.services.scaler.book.records import (
    OpenBook,
    ids,
    key,
    line,
    open_attempt,
    record,
    round_entry,
    write,
)


async def test_everything_is_there_after_reopening(open_book: OpenBook) -> None:
    book = open_book()
    await book.create(record(), key("k", "job"))
    lines = (line(1.0), line(2.0))
    written = await write(book, lease_id="l", rounds=(round_entry(0, 2.5),), lines=lines)
    await write(book, num_lines=2)
    book.close()
    book = open_book()
    assert book.job("job") == written.model_copy(update={"version": 2})
    assert book.job_of_lease("l") == book.job("job")
    assert book.round("job", 0) == book.last_round("job") == round_entry(0, 2.5)
    assert book.lines("job") == [line(1.0), line(2.0)]
    assert book.lines("job", skip=1) == [line(2.0)]
    assert book.idempotency("k") == key("k", "job")


async def test_what_is_not_there_is_none_or_empty(book: Book) -> None:
    book.check()
    assert (book.job("x"), book.job_of_lease("x"), book.idempotency("x")) == (None, None, None)
    assert (book.round("x", 0), book.last_round("x")) == (None, None)
    assert (book.rounds("x", first=0, limit=9), book.ratios("x", before=999, limit=9)) == ([], [])
    assert (book.lines("x"), book.rows(limit=9, before=None)) == ([], [])
    assert (book.with_status({"queued"}), sum(book.counts().values())) == ([], 0)
    assert await book.change("x", lambda _: None) is None
    await book.delete("x")


async def test_a_change_is_decided_once_of_the_job_as_it_is_however_many_come_at_once(
    book: Book,
) -> None:
    await book.create(record())
    await asyncio.gather(*(write(book, lines=(line(1.0),)) for _ in range(40)))
    final = book.job("job")
    assert final is not None
    assert (final.version, final.num_lines, len(book.lines("job"))) == (40, 40, 40)


async def test_lines_that_are_written_and_not_counted_are_refused(book: Book) -> None:
    await book.create(record())
    with pytest.raises(ValueError, match="1 lines are written and not counted"):
        await write(book, lines=(line(1.0),), num_lines=0)
    assert book.lines("job") == []


class LostAnswers:
    """Stands before a table; fails once to say that it has written, or does not write.

    The first `unbroken` writes are answered.
    """

    def __init__(self, table: Table, *, writes: bool, unbroken: int = 0) -> None:
        self.__dict__.update({"get": table.get, "query": table.query, "run": table.run})
        self._table, self._writes = table, writes
        self._calls, self._broken = itertools.count(), unbroken

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        is_broken = next(self._calls) == self._broken
        if not is_broken or self._writes:
            self._table.write(puts, deletes, expect=expect)
        if is_broken:
            raise StoreError("the answer is lost")


@pytest.mark.parametrize("writes", [True, False])
async def test_a_write_that_may_have_taken_effect_is_looked_up_before_the_next(
    open_table: Callable[[], Table], open_book: OpenBook, writes: bool
) -> None:
    await open_book().create(record())
    table: Any = LostAnswers(open_table(), writes=writes)
    book = Book(table, now=lambda: 7.0)
    with pytest.raises(StoreError, match="lost"):
        await write(book, lines=(line(1.0),))
    assert (await write(book, lines=(line(2.0),))).version == 1 + writes
    assert book.lines("job") == [line(1.0)] * writes + [line(2.0)]


async def test_a_job_that_ended_though_the_write_failed_counts_as_ended_once_it_is_looked_at(
    open_table: Callable[[], Table],
) -> None:
    table: Any = LostAnswers(open_table(), writes=True, unbroken=1)
    book = Book(table, now=lambda: 7.0)
    await book.create(record())
    with pytest.raises(StoreError, match="lost"):
        await write(book, status="succeeded")
    seen = await book.change("job", lambda _: None)
    assert seen is not None
    assert seen.job.status == "succeeded"
    assert (book.live("job"), ids(book.with_status({"queued"}))) == (None, [])
    assert book.counts() == {"succeeded": 1}


async def test_a_deletion_that_failed_though_it_took_effect_may_be_repeated(
    open_table: Callable[[], Table],
) -> None:
    table: Any = LostAnswers(open_table(), writes=True, unbroken=1)
    book = Book(table, now=lambda: 7.0)
    await book.create(record())
    with pytest.raises(StoreError, match="lost"):
        await book.delete("job")
    await book.delete("job")
    assert not book.fenced
    assert (book.job("job"), book.live("job"), book.counts()) == (None, None, {})


async def test_what_is_asked_for_and_unknown_leaves_nothing_in_memory(tmp_path: Path) -> None:
    book = Book(SqliteTable(tmp_path / "jobs.sqlite3"), now=lambda: 7.0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2000):
            await book.delete(f"unknown-{number}")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        book.close()
    assert after - before < 50_000


async def test_a_job_that_takes_long_to_be_added_keeps_nobody_from_changing_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SqliteTable(tmp_path / "jobs.sqlite3")
    book = Book(table, now=lambda: 7.0)
    await book.create(record("a"))
    begun, may_end, run_now = asyncio.Event(), asyncio.Event(), table.run

    async def slow(call: Callable[[], Any]) -> Any:
        if not begun.is_set():
            begun.set()
            await may_end.wait()
        return await run_now(call)

    monkeypatch.setattr(table, "run", slow)
    adding = asyncio.create_task(book.create(record("b")))
    await begun.wait()
    assert (await write(book, "a", lease_id="one")).version == 1
    assert book.job_of_lease("one") is not None
    may_end.set()
    await adding
    assert ids(book.with_status({"queued"})) == ["a", "b"]
    book.close()


async def test_a_job_whose_submission_failed_though_it_was_written_is_found_all_the_same(
    open_table: Callable[[], Table],
) -> None:
    table: Any = LostAnswers(open_table(), writes=True)
    book = Book(table, now=lambda: 7.0)
    with pytest.raises(StoreError, match="lost"):
        await book.create(record("a"), key("k", "a"))
    assert await book.create(record("a"), key("k", "a")) == key("k", "a")
    assert ids(book.with_status({"queued"})) == ["a"]
    await book.create(record("b"))
    assert ids(book.with_status({"queued"})) == ["a", "b"]


async def test_a_job_is_added_behind_one_whose_submission_failed_though_it_was_written(
    open_table: Callable[[], Table],
) -> None:
    table: Any = LostAnswers(open_table(), writes=True)
    book = Book(table, now=lambda: 7.0)
    with pytest.raises(StoreError, match="lost"):
        await book.create(record("a"))
    await book.create(record("b"))
    assert [position for position, _ in book.rows(limit=9, before=None)] == [2, 1]
    assert ids(book.with_status({"queued"})) == ["a", "b"]


async def test_a_job_is_added_once_and_a_key_belongs_to_one_job(book: Book) -> None:
    assert await book.create(record("a"), key("k", "a")) is None
    assert await book.create(record("b"), key("k", "b")) == key("k", "a")
    assert book.job("b") is None
    assert book.counts() == {"queued": 1}


async def test_a_lease_is_found_while_it_is_held(book: Book) -> None:
    await book.create(record("a"))
    await book.create(record("b"))
    await write(book, "a", lease_id="one")
    await write(book, "b", lease_id="other")
    second = await write(book, "a", status="running", lease_id="two")
    assert book.job_of_lease("one") is None
    assert book.job_of_lease("two") == second
    ended = await write(book, "a", status="succeeded")
    assert book.job_of_lease("two") == ended
    await write(book, "a", lease=None)
    assert book.job_of_lease("two") is None


def test_a_record_of_before_deletions_were_marked_is_not_marked() -> None:
    old = record().model_dump(mode="json", exclude={"deleting"})
    assert JobRecord.model_validate_json(json.dumps(old)) == record()
    assert not record().deleting


async def test_jobs_by_status(book: Book, open_book: OpenBook) -> None:
    for job_id in ("a", "b", "c", "d"):
        await book.create(record(job_id))
    await write(book, "b", status="running")
    await write(book, "a", status="failed")
    for each in (book, open_book()):
        assert ids(each.with_status({"queued"})) == ["c", "d"]
        assert ids(each.with_status({"running", "queued"})) == ["b", "c", "d"]
        assert each.counts() == {"queued": 2, "running": 1, "failed": 1}
    await write(book, "a", status="queued")
    for each in (book, open_book()):
        assert ids(each.with_status({"queued"})) == ["a", "c", "d"], "in the order of submission"
        assert each.counts() == {"queued": 3, "running": 1}


async def test_jobs_with_launches_that_are_not_billed_are_found_in_any_state(
    book: Book, open_book: OpenBook
) -> None:
    for job_id in ("a", "b", "c"):
        await book.create(record(job_id))
    for job_id in ("b", "c"):
        await write(book, job_id, status="failed", open_attempts=(open_attempt(),))
    assert ids(book.with_open_bills()) == ids(open_book().with_open_bills()) == ["b", "c"]
    await write(book, "c", open_attempts=(), lines=(line(1.0),))
    assert ids(book.with_open_bills()) == ids(open_book().with_open_bills()) == ["b"]


async def test_jobs_are_listed_newest_first_page_by_page_as_they_are(book: Book) -> None:
    names = [f"j{i}" for i in range(7)]
    for name in names:
        await book.create(record(name))
    await write(book, "j2", status="running")
    await write(book, "j5", status="failed")
    listed: list[JobSummary] = []
    cursor: int | None = None
    while page := book.rows(limit=2, before=cursor):
        listed += [row for _, row in page]
        assert len(page) <= 2
        cursor = page[-1][0]
    assert [row.job_id for row in listed] == names[::-1]
    assert [row.status for row in listed if row.status != "queued"] == ["failed", "running"]


async def test_a_row_that_another_version_wrote_is_made_of_the_record_again(
    open_table: Callable[[], Table], open_book: OpenBook
) -> None:
    await open_book().create(record())
    table = open_table()
    (row,) = table.query("JOBS")
    table.write([Item(row.key, "{}")], expect={})
    book = open_book()
    assert [each.job_id for _, each in book.rows(limit=9, before=None)] == ["job"]
    assert ids(book.with_status({"queued"})) == ["job"]
