"""The layout of jobs, rounds and ledger lines in a table. Pure: values in, items out.

    pk          sk                     holds
    JOB#{id}    JOB                    the job's record; its version is the record's
    JOB#{id}    ROUND#{round}#{part}   a round; more than one part only when it is large
    JOB#{id}    RATIO#{round}          the round's ratio, so that a window of them is one small read
    JOB#{id}    LINES#{first}          up to 50 ledger lines, named after the position of the first
    JOB#{id}    EVENT#{number % 500}   an event, in the place of the one 500 before it
    JOBS        {position}#{id}        the job in short: the list for people, and what is unfinished
    KEY#{key}   KEY                    what an idempotency key was used for

Documents are the models' JSON as text: a number reads back as it was written.
"""

from collections.abc import Iterable, Iterator, Sequence

from services.scaler.book.attempts import RoundEntry
from services.scaler.book.records import IdempotencyEntry, JobRecord, JobRow
from services.scaler.book.table import LAST, Item, Key, Range
from shared.contracts.views.events import KEPT_EVENTS

JOBS = "JOBS"
_PARTITION = "JOB#"
_LINES_PER_ITEM = 50
_PART_CHARS = 90_000
"""At most 360 KB of UTF-8, below the 400 KB an item of DynamoDB may have."""


def partition(job_id: str) -> str:
    """Return the partition of a job's data, except its row and its key."""
    return f"{_PARTITION}{job_id}"


def job_key(job_id: str) -> Key:
    """Return the key of a job's record."""
    return partition(job_id), "JOB"


def idempotency_key(name: str) -> Key:
    """Return the item key of an idempotency key's use."""
    return f"KEY#{name}", "KEY"


def row_key(record: JobRecord) -> Key:
    """Return the key of a job's row."""
    return JOBS, f"{_position_name(record.position)}#{record.job.job_id}"


def rows_from(position: int) -> Range:
    """Return the rows of all jobs from a position on."""
    return Range(first=_position_name(position))


def newest_rows(*, before: int | None, page: int) -> Range:
    """Return the rows of all jobs before a position, or of all, the newest first."""
    last = LAST if before is None else _position_name(before)
    return Range(last=last, newest_first=True, page=page)


def position_of(row: Item) -> tuple[int, str]:
    """Return the position of a row's job, and its id."""
    position, _, job_id = row.key[1].partition("#")
    return int(position), job_id


def parts_of(round_index: int) -> Range:
    """Return the parts of a round."""
    name = _round_name(round_index)
    return Range(first=name, last=name + LAST)


def rounds_from(round_index: int, *, page: int | None = None) -> Range:
    """Return the parts of all rounds from one on."""
    return Range(first=_round_name(round_index), last=f"ROUND#{LAST}", page=page)


def newest_rounds(*, page: int) -> Range:
    """Return the parts of all rounds, the newest first."""
    return Range(first="ROUND#", last=f"ROUND#{LAST}", newest_first=True, page=page)


def ratios_from(round_index: int) -> Range:
    """Return the ratios of all rounds from one on."""
    return Range(first=_ratio_name(round_index), last=f"RATIO#{LAST}")


def newest_ratios(*, page: int) -> Range:
    """Return all ratios, the newest first."""
    return Range(first="RATIO#", last=f"RATIO#{LAST}", newest_first=True, page=page)


def lines_from(position: int) -> Range:
    """Return all items that may hold ledger lines from a position on."""
    first = max(0, position - _LINES_PER_ITEM + 1)
    return Range(first=_lines_name(first), last=f"LINES#{LAST}")


def event_ranges(first: int, last: int) -> list[Range]:
    """Return one or two ranges of places for events with these numbers."""
    turn = last - last % KEPT_EVENTS
    ranges = [(first, last)] if first >= turn else [(first, turn - 1), (turn, last)]
    return [Range(first=_event_name(one), last=_event_name(other)) for one, other in ranges]


def number_of(item: Item) -> int:
    """Return the number in an item's sort key."""
    return int(item.key[1].split("#")[1])


def job_item(record: JobRecord) -> Item:
    """Return a job's record as an item."""
    return Item(job_key(record.job.job_id), record.model_dump_json(), record.version)


def row_item(record: JobRecord) -> Item:
    """Return a job's row as an item."""
    return Item(row_key(record), JobRow.of(record).model_dump_json())


def idempotency_item(entry: IdempotencyEntry) -> Item:
    """Return a key's use as an item."""
    return Item(idempotency_key(entry.key), entry.model_dump_json())


def entry_items(job_id: str, entry: RoundEntry) -> list[Item]:
    """Return a round's text in as many parts as its size needs, and its ratio."""
    text, ratio = entry.model_dump_json(), entry.ratio
    pieces = [text[start : start + _PART_CHARS] for start in range(0, len(text), _PART_CHARS)]
    name, pk = _round_name(entry.round), partition(job_id)
    items = [
        Item((pk, f"{name}{part:04d}"), f"{len(pieces)} {piece}")
        for part, piece in enumerate(pieces)
    ]
    if ratio is not None:
        items.append(Item((pk, _ratio_name(entry.round)), repr(ratio)))
    return items


def rounds_of(items: Iterable[Item]) -> Iterator[str]:
    """Yield the texts of rounds from their parts in order.

    Extra parts are left over from a longer version of the round. A round with missing parts is an
    interrupted deletion: it is gone.
    """
    number, wanted = -1, 0
    pieces: list[str] = []
    for item in items:
        parts, _, piece = item.body.partition(" ")
        part = int(item.key[1].rpartition("#")[2])
        if part == 0:
            number, wanted, pieces = number_of(item), int(parts), []
        if number_of(item) != number or part != len(pieces) or part >= wanted:
            continue
        pieces.append(piece)
        if len(pieces) == wanted:
            yield "".join(pieces)


def line_items(job_id: str, lines: Sequence[str], *, first: int) -> list[Item]:
    """Return the texts of ledger lines that follow the first `first` ones."""
    return [
        Item(
            (partition(job_id), _lines_name(first + start)),
            "\n".join(lines[start : start + _LINES_PER_ITEM]),
        )
        for start in range(0, len(lines), _LINES_PER_ITEM)
    ]


def lines_of(items: Iterable[Item], *, skip: int) -> Iterator[str]:
    """Yield the texts of the lines in the items from position `skip` on."""
    for item in items:
        for position, line in enumerate(item.body.split("\n"), number_of(item)):
            if position >= skip:
                yield line


def event_item(job_id: str, number: int, text: str) -> Item:
    """Return an event as an item in a ring of places."""
    return Item((partition(job_id), _event_name(number)), text)


def _position_name(position: int) -> str:
    """Format a job's position so that text order equals numeric order."""
    return f"{position:020d}"


def _round_name(round_index: int) -> str:
    """Return the prefix of a round's parts."""
    return f"ROUND#{round_index:010d}#"


def _ratio_name(round_index: int) -> str:
    return f"RATIO#{round_index:010d}"


def _lines_name(position: int) -> str:
    return f"LINES#{position:010d}"


def _event_name(number: int) -> str:
    return f"EVENT#{number % KEPT_EVENTS:04d}"
