"""Rounds, ratios, lines and events, as they are read again."""

import math
import sys
from collections.abc import Callable

from services.scaler.book.book import Book
from services.scaler.book.layout import entry_items
from services.scaler.book.table import Table
from shared.contracts.billing import LedgerLine
from shared.contracts.views.events import KEPT_EVENTS
from tests.services.scaler.book.records import (
    OpenBook,
    large_round,
    line,
    record,
    round_entry,
    write,
)
from tests.services.scaler.running import result


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


async def test_events_come_back_in_order_and_the_newest_are_kept(book: Book) -> None:
    await book.create(record())
    for number in range(KEPT_EVENTS // 2 + 5):
        await write(book, status="running", lease_id=f"l{number}")  # one event, then two each
    kept = await write(book)
    assert kept.num_events > KEPT_EVENTS
    everything = book.events(kept, after=0, limit=1000)
    assert [event.number for event in everything] == list(
        range(kept.num_events + 1 - KEPT_EVENTS, kept.num_events + 1)
    )
    assert everything[-1].at == 7.0
    after = kept.num_events - 10
    assert book.events(kept, after=after, limit=4) == everything[-10:-6]
