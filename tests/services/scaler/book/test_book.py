"""The book by what it promises: whole changes, one writer a job, nothing lost on reopening."""

import asyncio
import itertools
import json
import math
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.scaler.book.attempts import RoundEntry
from services.scaler.book.book import Book
from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.book.layout import entry_items
from services.scaler.book.records import IdempotencyEntry, JobRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Expected, Item, Key, StoreError, Table
from services.scaler.book.writes import FencedError
from shared.contracts.billing import LedgerLine
from shared.contracts.views.events import KEPT_EVENTS
from shared.contracts.views.jobs import JobSummary
from tests.services.scaler.book.records import (
    REGION,
    line,
    make_table,
    open_attempt,
    record,
    round_entry,
    write,
)
from tests.services.scaler.running import result

OpenBook = Callable[[], Book]


@pytest.fixture(params=["sqlite", "dynamodb"])
def open_table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Table]]:
    """Open the same table again and again."""
    opened: list[Table] = []
    name = ""
    if request.param == "dynamodb":
        request.getfixturevalue("aws")
        name = make_table()

    def connect() -> Table:
        table: Table = (
            DynamoDbTable.connect(name, region=REGION)
            if name
            else SqliteTable(tmp_path / "folder" / "jobs.sqlite3")
        )
        opened.append(table)
        return table

    yield connect
    for table in opened:
        table.close()


@pytest.fixture
def open_book(open_table: Callable[[], Table]) -> OpenBook:
    """Open the same jobs again and again."""
    return lambda: Book(open_table(), now=lambda: 7.0)


@pytest.fixture
def book(open_book: OpenBook) -> Book:
    return open_book()


def ids(records: list[JobRecord]) -> list[str]:
    return [one.job.job_id for one in records]


def key(name: str, job_id: str, digest: str = "d") -> IdempotencyEntry:
    return IdempotencyEntry(key=name, body_digest=digest, job_id=job_id)


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


async def test_ratios_are_the_newest_defined_ones_oldest_first(book: Book) -> None:
    await book.create(record())
    ratios = (1.0, None, 3.0, 4.0, None)
    await write(book, rounds=[round_entry(i, r) for i, r in enumerate(ratios)])
    assert book.ratios("job", before=999, limit=2) == [3.0, 4.0]
    assert book.ratios("job", before=3, limit=2) == [1.0, 3.0]
    assert book.ratios("job", before=999, limit=9) == [1.0, 3.0, 4.0]
    assert [e.round for e in book.rounds("job", first=1, limit=3)] == [1, 2, 3]
    await write(book, rounds=(round_entry(3), round_entry(4, 5.0)), forget_rounds_from=3)
    assert book.ratios("job", before=999, limit=9) == [1.0, 3.0, 5.0]


async def test_numbers_read_back_as_they_were_written(book: Book) -> None:
    await book.create(record())
    values = (0.1 + 0.2, math.pi, sys.float_info.max, sys.float_info.min, 1e-7, 1 / 3, -2.5e-17)
    rounds = [round_entry(i, ratio) for i, ratio in enumerate(values)]
    lines = [line(abs(value)) for value in values]
    await write(book, rounds=rounds, lines=lines)
    assert book.ratios("job", before=999, limit=9) == list(values)
    assert book.rounds("job", first=0, limit=9) == rounds
    assert book.lines("job") == lines


async def test_lines_keep_their_order_over_many_changes_and_can_be_skipped(book: Book) -> None:
    await book.create(record())
    written: list[LedgerLine] = []
    for size in (1, 60, 0, 49, 120):
        lines = [line(float(len(written) + i)) for i in range(size)]
        await write(book, lines=lines)
        written += lines
    for skip in (0, 1, 49, 50, 51, 60, 61, 109, 110, 160, 229, 230, 500):
        assert book.lines("job", skip=skip) == written[skip:]
    assert book.lines("job", skip=55, limit=20) == written[55:75]


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


def large_round(index: int) -> RoundEntry:
    """Return a round that takes three parts, and has a ratio."""
    returns = (22.0,) * 40_000
    return round_entry(index, float(index)).model_copy(
        update={"result": result(index, episode_returns=returns)}
    )


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


async def test_a_round_as_large_as_a_request_may_be_is_kept_and_can_shrink(book: Book) -> None:
    """The scaler takes bodies of 1 MiB; an item of DynamoDB holds 400 KB."""
    await book.create(record())
    returns = tuple(i / 7 for i in range(70_000))
    large = round_entry(0).model_copy(update={"result": result(0, episode_returns=returns)})
    assert len(large.model_dump_json()) > 2**20
    await write(book, rounds=(large,))
    assert book.round("job", 0) == book.last_round("job") == large
    await write(book, rounds=(round_entry(0),))
    assert book.round("job", 0) == book.last_round("job") == round_entry(0)
    await write(book, rounds=(round_entry(1),))
    assert [e.round for e in book.rounds("job", first=0, limit=2)] == [0, 1]


async def test_the_newest_round_is_the_newest_that_is_whole(
    open_table: Callable[[], Table], open_book: OpenBook
) -> None:
    book, table = open_book(), open_table()
    await book.create(record())
    rounds = [large_round(0), large_round(1)]
    await write(book, rounds=rounds)
    first, *_ = entry_items("job", rounds[1])
    table.write((), [first.key], expect={})
    assert book.last_round("job") == rounds[0]
    assert book.rounds("job", first=0, limit=9) == [rounds[0]]


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


async def test_events_come_back_in_order_and_the_newest_are_kept(book: Book) -> None:
    await book.create(record())
    for number in range(KEPT_EVENTS // 2 + 5):
        await write(book, status="running", lease_id=f"l{number}")  # two events but for the first
    kept = await write(book)
    assert kept.num_events > KEPT_EVENTS
    everything = book.events(kept, after=0, limit=1000)
    assert [event.number for event in everything] == list(
        range(kept.num_events + 1 - KEPT_EVENTS, kept.num_events + 1)
    )
    assert everything[-1].at == 7.0
    after = kept.num_events - 10
    assert book.events(kept, after=after, limit=4) == everything[-10:-6]
