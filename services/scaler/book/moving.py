"""Moving a job from one SQLite database to another: several systems may share a folder of runs."""

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from services.scaler.book import layout
from services.scaler.book.book import Book
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import MAX_ITEMS, StoreError


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job in a database."""

    job_id: str
    is_live: bool
    """Whether anything is still to be done about it: its last actors may not be billed yet."""


def find_job(path: Path, *, job_id: str | None = None, key: str | None = None) -> FoundJob | None:
    """Return the job of an id, or of an idempotency key, if a database has it.

    Raises:
        StoreError: The database cannot be read.
    """
    with closing(_opened(path)) as book:
        used = None if key is None else book.idempotency(key)
        name = job_id if used is None else used.job_id
        record = None if name is None else book.job(name)
    return None if record is None else FoundJob(record.job.job_id, record.is_live)


def move_job(job_id: str, source: Path, target: Path) -> None:
    """Move a job with its rounds, bill and events. A crash in between leaves it in the source.

    Raises:
        StoreError: A database cannot be read or written, or the target has another job of the same
            idempotency key.
    """
    with closing(_opened(source)) as old, closing(_opened(target)) as new:
        record = old.job(job_id)
        if record is None:
            return
        key = record.idempotency_key
        taken = None if key is None else new.idempotency(key)
        if taken is not None and taken.job_id != job_id:
            raise StoreError(
                f"idempotency key {key!r} is job {job_id}'s in {source} and job {taken.job_id}'s "
                f"in {target}: delete one of the two jobs, then try again"
            )
        asyncio.run(new.delete(job_id))
        _copy_pages(job_id, source, target)
        asyncio.run(new.create(record, None if key is None else old.idempotency(key)))
        asyncio.run(old.delete(job_id))


def _copy_pages(job_id: str, source: Path, target: Path) -> None:
    """Copy everything about a job but its record."""
    with closing(SqliteTable(source)) as old, closing(SqliteTable(target)) as new:
        record = layout.job_key(job_id)
        pages = (item for item in old.query(layout.partition(job_id)) if item.key != record)
        while some := list(islice(pages, MAX_ITEMS)):
            new.write(some, expect={})


def _opened(path: Path) -> Book:
    return Book(SqliteTable(path), now=time.time)
