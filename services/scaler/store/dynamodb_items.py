"""How jobs, rounds and ledger lines lie in one DynamoDB table. Pure: values in, items out.

    pk          sk                    holds
    JOB#{id}    JOB                   the job's record, its version, how many ledger lines it has
    JOB#{id}    ROUND#{round}#{part}  a round; more than one part only when it is large
    JOB#{id}    RATIO#{round}         the round's ratio, so that a window of them is one small read
    JOB#{id}    LINES#{first}         up to 50 ledger lines, named after the position of the first
    JOB#{id}    EVENT#{number % 500}  an event, in the place of the one 500 before it
    ACTIVE      {id}                  that a job is unfinished, leased, or not billed to its end
    KEY#{key}   KEY                   what an idempotency key was used for
    COUNTER     JOBS                  the newest job's position

The index `queue` (`gsi_pk` status, `gsi_sk` position; keys suffice as projection) lists jobs for
people. It lags behind the table, so nothing that is decided rests on it: that is what ACTIVE is
for. Documents are the models' JSON as text: a number reads back as it was written.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from services.scaler.store.base import IdempotencyEntry, JobRecord, RoundEntry
from services.scaler.store.reading import parsed
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import FINISHED
from shared.contracts.views.events import KEPT_EVENTS, JobEvent

_PARTITION = "JOB#"
INDEX = "queue"
ACTIVE = "ACTIVE"
COUNTER_KEY = {"pk": "COUNTER", "sk": "JOBS"}
LINES_PER_ITEM = 50
_PART_CHARS = 90_000
"""At most 360 KB of UTF-8, below the 400 KB an item may have."""

Item = dict[str, Any]
"""Attributes by name."""


def key(pk: str, sk: str) -> Item:
    """Return a primary key."""
    return {"pk": pk, "sk": sk}


def key_of(item: Item) -> Item:
    """Return an item's primary key."""
    return key(item["pk"], item["sk"])


def partition(job_id: str) -> str:
    """Return the partition of everything about a job but its entry in ACTIVE and its key."""
    return f"{_PARTITION}{job_id}"


def job_id_of(item: Item) -> str:
    """Return which job an item of its partition is about."""
    return str(item["pk"]).removeprefix(_PARTITION)


def job_key(job_id: str) -> Item:
    """Return the key of a job's record."""
    return key(partition(job_id), "JOB")


def active_key(job_id: str) -> Item:
    """Return the key of the entry that says a job is unfinished."""
    return key(ACTIVE, job_id)


def idempotency_key(name: str) -> Item:
    """Return the key of what an idempotency key was used for."""
    return key(f"KEY#{name}", "KEY")


def round_name(round_index: int) -> str:
    """Return where a round's parts begin in the job's partition."""
    return f"ROUND#{round_index:010d}#"


def ratio_name(round_index: int) -> str:
    """Return where a round's ratio is in the job's partition."""
    return f"RATIO#{round_index:010d}"


def round_of_key(name: Item) -> int:
    """Return which round the key of a part or of a ratio is about."""
    return int(name["sk"].split("#")[1])


def lines_name(position: int) -> str:
    """Return where the ledger lines from a position on are in the job's partition."""
    return f"LINES#{position:010d}"


def position_name(position: int) -> str:
    """Return a job's position so that text order is number order."""
    return f"{position:020d}"


def job_item(record: JobRecord, position: int, idempotency: IdempotencyEntry | None) -> Item:
    """Return a new job."""
    item = {
        **job_key(record.job.job_id),
        "version": record.version,
        "num_lines": 0,
        "document": record.model_dump_json(),
        "gsi_pk": record.job.status,
        "gsi_sk": position_name(position),
    }
    return item if idempotency is None else {**item, "idempotency_key": idempotency.key}


def position_of(item: Item) -> int:
    """Return a job's position from its record or from an index entry."""
    return int(item["gsi_sk"])


def document_of(item: Item) -> tuple[str, str]:
    """Return a job's record as text, and the job's id."""
    return item["document"], job_id_of(item)


def active_item(record: JobRecord) -> Item | None:
    """Return the entry of a job that anything is still to be done about; None of any other."""
    if record.job.status in FINISHED and record.lease is None and not record.has_open_bills:
        return None
    item = {**active_key(record.job.job_id), "status": record.job.status}
    return item if record.lease is None else {**item, "lease_id": record.lease.lease_id}


def round_items(job_id: str, entry: RoundEntry) -> list[Item]:
    """Return a round in as many parts as its size needs."""
    text = entry.model_dump_json()
    pieces = [text[start : start + _PART_CHARS] for start in range(0, len(text), _PART_CHARS)]
    return [
        {
            **key(partition(job_id), f"{round_name(entry.round)}{part:04d}"),
            "round": entry.round,
            "part": part,
            "parts": len(pieces),
            "document": piece,
        }
        for part, piece in enumerate(pieces)
    ]


def rounds_of(items: Iterable[Item]) -> Iterator[RoundEntry]:
    """Return the rounds whose parts come in order.

    Parts beyond a round's number of parts are left from when it was longer. A round of which parts
    are missing was being deleted when that was interrupted: it is gone.
    """
    number, wanted = -1, 0
    pieces: list[str] = []
    for item in items:
        part = item["part"]
        if part == 0:
            number, wanted, pieces = item["round"], item["parts"], []
        if item["round"] != number or part != len(pieces) or part >= wanted:
            continue
        pieces.append(item["document"])
        if len(pieces) == wanted:
            yield parsed(RoundEntry, "".join(pieces), job_id_of(item))


def batched(groups: Iterable[Sequence[Item]], size: int) -> Iterator[list[Item]]:
    """Return groups in batches of at most `size`, none of them divided.

    A group that is larger than that is a batch of its own.
    """
    batch: list[Item] = []
    for group in groups:
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = []
        batch = [*batch, *group]
    if batch:
        yield batch


def ratio_item(job_id: str, entry: RoundEntry) -> Item | None:
    """Return a round's ratio; None when it has none."""
    if entry.ratio is None:
        return None
    # As text: a number would lose digits.
    return {**key(partition(job_id), ratio_name(entry.round)), "ratio": repr(entry.ratio)}


def line_items(job_id: str, lines: tuple[LedgerLine, ...], *, first: int) -> list[Item]:
    """Return ledger lines that follow the first `first` ones."""
    return [
        {
            **key(partition(job_id), lines_name(first + start)),
            "first": first + start,
            "documents": [line.model_dump_json() for line in lines[start : start + LINES_PER_ITEM]],
        }
        for start in range(0, len(lines), LINES_PER_ITEM)
    ]


def event_key(job_id: str, number: int) -> Item:
    """Return the key of a job's event, which others had before it and will have after it."""
    return key(partition(job_id), f"EVENT#{number % KEPT_EVENTS:04d}")


def event_item(job_id: str, event: JobEvent) -> Item:
    """Return an event."""
    return {**event_key(job_id, event.number), "document": event.model_dump_json()}


def lines_of(items: Iterable[Item], *, skip: int) -> Iterator[LedgerLine]:
    """Return the lines in the items from position `skip` on."""
    return (
        parsed(LedgerLine, document, job_id_of(item))
        for item in items
        for position, document in enumerate(item["documents"], int(item["first"]))
        if position >= skip
    )
