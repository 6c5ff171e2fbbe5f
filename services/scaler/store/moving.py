"""Moving a job from one SQLite database to another: several systems may share a folder of runs."""

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from services.scaler.store.base import StoreError
from services.scaler.store.sqlite import SqliteStore
from shared.contracts.jobs import FINISHED

_COLUMNS = {
    "jobs": "job_id, version, status, lease_id, document",
    "rounds": "job_id, round, ratio, document",
    "ledger": "job_id, document",
    "events": "job_id, slot, number, document",
    "idempotency": "key, body_digest, job_id",
}
"""Of each table in order, a job's row before what refers to it; positions are given anew."""
_BUSY_S = 10.0


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job in a database."""

    job_id: str
    finished: bool


def find_job(path: Path, *, job_id: str | None = None, key: str | None = None) -> FoundJob | None:
    """Return the job of an id, or of an idempotency key, if a database has it.

    Raises:
        StoreError: The database cannot be read.
    """
    query = (
        "SELECT job_id, status FROM jobs WHERE job_id = ?1 OR job_id IN "
        "(SELECT job_id FROM idempotency WHERE key = ?2)"
    )
    try:
        with contextlib.closing(_opened(path)) as connection:
            row = connection.execute(query, (job_id, key)).fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"cannot read the job database {path}: {error}") from error
    return None if row is None else FoundJob(row[0], row[1] in FINISHED)


def move_job(job_id: str, source: Path, target: Path) -> None:
    """Move a job with its rounds, bill and events. A crash in between leaves it in the source.

    Raises:
        StoreError: A database cannot be read or written.
    """
    SqliteStore(target).close()  # makes its tables
    try:
        with contextlib.closing(_opened(source)) as connection:
            connection.execute("ATTACH DATABASE ? AS target", (str(target),))
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM target.jobs WHERE job_id = ?", (job_id,))
            for table, columns in _COLUMNS.items():
                order = " ORDER BY position" if table == "ledger" else ""
                connection.execute(
                    f"INSERT INTO target.{table} ({columns}) SELECT {columns} FROM main.{table} "
                    f"WHERE job_id = ?{order}",
                    (job_id,),
                )
            connection.execute("COMMIT")
            connection.execute("DELETE FROM main.jobs WHERE job_id = ?", (job_id,))
    except sqlite3.Error as error:
        raise StoreError(f"cannot move job {job_id} from {source} to {target}: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    connection.execute("PRAGMA foreign_keys=ON")
    return connection
