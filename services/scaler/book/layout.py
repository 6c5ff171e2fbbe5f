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
from services.scaler.book.table import LAST, Item, Key
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
    return JOBS, f"{position_name(record.position)}#{record.job.job_id}"


def position_name(position: int) -> str:
    """Format a job's position so that text order equals numeric order."""
    return f"{position:020d}"


def position_of(row: Item) -> tuple[int, str]:
    """Return the position of a row's job, and its id."""
    position, _, job_id = row.key[1].partition("#")
    return int(position), job_id


def round_name(round_index: int) -> str:
    """Return the prefix of a round's parts in the job's partition."""
    return f"ROUND#{round_index:010d}#"


def ratio_name(round_index: int) -> str:
    """Return the sort key of a round's ratio."""
    return f"RATIO#{round_index:010d}"


def lines_name(position: int) -> str:
    """Return the sort key of the ledger lines from a position."""
    return f"LINES#{position:010d}"


def end_of(kind: str) -> str:
    """Return the upper end of a kind's sort keys: ROUND, RATIO, LINES or EVENT."""
    return f"{kind}#{LAST}"


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
    name, pk = round_name(entry.round), partition(job_id)
    items = [
        Item((pk, f"{name}{part:04d}"), f"{len(pieces)} {piece}")
        for part, piece in enumerate(pieces)
    ]
    if ratio is not None:
        items.append(Item((pk, ratio_name(entry.round)), repr(ratio)))
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
            (partition(job_id), lines_name(first + start)),
            "\n".join(lines[start : start + _LINES_PER_ITEM]),
        )
        for start in range(0, len(lines), _LINES_PER_ITEM)
    ]


def first_lines_name(skip: int) -> str:
    """Return the first sort key whose item may hold the line at a position."""
    return lines_name(max(0, skip - _LINES_PER_ITEM + 1))


def lines_of(items: Iterable[Item], *, skip: int) -> Iterator[str]:
    """Yield the texts of the lines in the items from position `skip` on."""
    for item in items:
        for position, line in enumerate(item.body.split("\n"), number_of(item)):
            if position >= skip:
                yield line


def event_item(job_id: str, number: int, text: str) -> Item:
    """Return an event as an item in a ring of places."""
    return Item((partition(job_id), _event_name(number)), text)


def event_names(first: int, last: int) -> list[tuple[str, str]]:
    """Return one or two ranges of sort keys for events with these numbers."""
    turn = last - last % KEPT_EVENTS
    ranges = [(first, last)] if first >= turn else [(first, turn - 1), (turn, last)]
    return [(_event_name(one), _event_name(other)) for one, other in ranges]


def _event_name(number: int) -> str:
    return f"EVENT#{number % KEPT_EVENTS:04d}"
