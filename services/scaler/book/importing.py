"""Takes over a database file of an earlier version: it had a table for each kind of document."""

import itertools
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from services.scaler.book import layout
from services.scaler.book.reading import UnreadableError, left_aside, parsed
from services.scaler.book.records import IdempotencyEntry, JobRecord
from services.scaler.book.sqlite import SCHEMA
from services.scaler.book.table import Item, StoreError

_LOG = logging.getLogger(__name__)
_OLD_TABLES = ("events", "idempotency", "ledger", "rounds", "jobs")
_PUT = "INSERT OR REPLACE INTO items (pk, sk, version, body) VALUES (?, ?, ?, ?)"


def import_old_file(path: Path) -> None:
    """Bring an old file into the form of today, all of it or nothing; no other is touched.

    Raises:
        StoreError: The file cannot be read or written.
    """
    if not path.is_file():
        return
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
            if "jobs" not in tables:
                return
            file.execute("BEGIN IMMEDIATE")
            file.execute(SCHEMA)
            # The oldest files have none of these.
            file.execute("CREATE TABLE IF NOT EXISTS events (job_id, number, document)")
            file.execute("CREATE TABLE IF NOT EXISTS idempotency (job_id, key, body_digest)")
            for item in _items(file):
                file.execute(_PUT, (*item.key, item.version, item.body))
            for name in _OLD_TABLES:
                file.execute(f"DROP TABLE {name}")
            file.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(
            f"cannot bring the job database {path} into its new form: {error}; check that its "
            "folder can be written and has free space"
        ) from error
    _LOG.info("job database brought into its new form", extra={"file": str(path)})


def _items(file: sqlite3.Connection) -> Iterator[Item]:
    """Yield everything that a file holds, job by job."""
    keys = {
        job_id: IdempotencyEntry(key=key, body_digest=digest, job_id=job_id)
        for key, digest, job_id in file.execute("SELECT key, body_digest, job_id FROM idempotency")
    }
    yield from map(layout.idempotency_item, keys.values())
    jobs = file.execute("SELECT position, job_id, version, document FROM jobs ORDER BY position")
    for position, job_id, version, document in jobs:
        of_job = (job_id,)
        found = file.execute(
            "SELECT document FROM ledger WHERE job_id = ? ORDER BY position", of_job
        )
        lines = [line for (line,) in found]
        yield from layout.line_items(job_id, lines, first=0)
        rounds = file.execute("SELECT round, document, ratio FROM rounds WHERE job_id = ?", of_job)
        for each in rounds:
            yield from layout.round_items(job_id, *each)
        events = file.execute("SELECT number, document FROM events WHERE job_id = ?", of_job)
        yield from itertools.starmap(layout.event_item, ((job_id, *each) for each in events))
        try:
            record = parsed(JobRecord, document, job_id)
        except UnreadableError as error:
            left_aside(job_id, error)
            yield Item(layout.job_key(job_id), document, version)
            continue
        key = keys[job_id].key if job_id in keys else None
        known = {"position": position, "num_lines": len(lines), "idempotency_key": key}
        record = record.model_copy(update=known)
        yield layout.job_item(record)
        yield layout.row_item(record)
