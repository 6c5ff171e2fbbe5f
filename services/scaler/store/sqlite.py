"""The store in one SQLite file: one process, write-ahead log, documents as JSON."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.scaler.store.base import (
    Change,
    IdempotencyEntry,
    JobRecord,
    RoundEntry,
    StoreError,
    VersionConflictError,
)
from services.scaler.store.reading import JobReader, M, parsed
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import JobStatus
from shared.contracts.views.events import KEPT_EVENTS, JobEvent

_HAS_OPEN_ATTEMPTS = (
    "CASE WHEN json_valid(document) THEN json_array_length(document, '$.open_attempts') "
    "+ coalesce(json_array_length(document, '$.open_gradients'), 0) END > 0"
)
"""Of the document, so that files of earlier versions need no new column."""
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS jobs (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    lease_id TEXT,
    document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_by_status ON jobs (status, position);
CREATE INDEX IF NOT EXISTS jobs_by_lease ON jobs (lease_id) WHERE lease_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_with_open_attempts ON jobs (position)
    WHERE {_HAS_OPEN_ATTEMPTS};
CREATE TABLE IF NOT EXISTS rounds (
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    round INTEGER NOT NULL,
    ratio REAL,
    document TEXT NOT NULL,
    PRIMARY KEY (job_id, round)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ledger (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_by_job ON ledger (job_id, position);
CREATE TABLE IF NOT EXISTS events (
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    slot INTEGER NOT NULL,
    number INTEGER NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (job_id, slot)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS idempotency (
    key TEXT PRIMARY KEY,
    body_digest TEXT NOT NULL,
    job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE
) WITHOUT ROWID;
"""


class SqliteStore:
    """A `Store` in one file. One connection, one lock: decisions are short and writes are few."""

    def __init__(self, path: Path) -> None:
        """Open the file, making it and its folder if missing.

        Raises:
            StoreError: The folder or the file cannot be written, or is no database.
        """
        self._path = path
        self._lock = threading.Lock()
        self._reader = JobReader()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # what SQLite lays beside it takes its mode
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            # NORMAL keeps every commit through a crash of this process; only a power cut may lose
            # the newest ones, and then a round is at most decided and launched again.
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from error

    def create(self, record: JobRecord, idempotency: IdempotencyEntry | None) -> None:
        """Add a job."""
        job = record.job
        with self._transaction() as connection:
            try:
                connection.execute(
                    "INSERT INTO jobs (job_id, version, status, document) VALUES (?, ?, ?, ?)",
                    (job.job_id, record.version, job.status, record.model_dump_json()),
                )
                if idempotency is not None:
                    connection.execute(
                        "INSERT INTO idempotency (key, body_digest, job_id) VALUES (?, ?, ?)",
                        (idempotency.key, idempotency.body_digest, idempotency.job_id),
                    )
            except sqlite3.IntegrityError as error:
                raise VersionConflictError(str(error)) from error

    def idempotency(self, key: str) -> IdempotencyEntry | None:
        """Return what a key was used for."""
        rows = self._read("SELECT key, body_digest, job_id FROM idempotency WHERE key = ?", (key,))
        if not rows:
            return None
        key, body_digest, job_id = rows[0]
        return IdempotencyEntry(key=key, body_digest=body_digest, job_id=job_id)

    def job(self, job_id: str) -> JobRecord | None:
        """Return a job."""
        return self._one(JobRecord, "FROM jobs WHERE job_id = ?", job_id)

    def job_of_lease(self, lease_id: str) -> JobRecord | None:
        """Return the job a lease is on."""
        return self._one(JobRecord, "FROM jobs WHERE lease_id = ?", lease_id)

    def jobs(
        self, *, status: JobStatus | None, limit: int, before: int | None
    ) -> list[tuple[int, JobRecord | None]]:
        """Return jobs, newest first."""
        rows = self._read(
            "SELECT position, job_id, document FROM jobs WHERE (?1 IS NULL OR status = ?1) "
            "AND (?2 IS NULL OR position < ?2) ORDER BY position DESC LIMIT ?3",
            (status, before, limit),
        )
        return [(position, self._reader.record(text, job_id)) for position, job_id, text in rows]

    def with_status(self, statuses: Sequence[JobStatus]) -> list[JobRecord]:
        """Return every job in one of the states, oldest first."""
        marks = ",".join("?" * len(statuses))
        return self._records(f"status IN ({marks})", tuple(statuses))

    def with_open_attempts(self) -> list[JobRecord]:
        """Return every job with launches whose bill is not final, oldest first."""
        return self._records(_HAS_OPEN_ATTEMPTS, ())

    def count(self, statuses: Sequence[JobStatus]) -> int:
        """Return how many jobs are in one of the states."""
        marks = ",".join("?" * len(statuses))
        rows = self._read(f"SELECT COUNT(*) FROM jobs WHERE status IN ({marks})", tuple(statuses))
        return int(rows[0][0])

    def commit(self, change: Change) -> JobRecord:
        """Write a change whole."""
        old = change.record
        new = old.model_copy(update={"version": old.version + 1})
        job_id = new.job.job_id
        lease_id = None if new.lease is None else new.lease.lease_id
        stored = (new.version, new.job.status, lease_id, new.model_dump_json())
        with self._transaction() as connection:
            updated = connection.execute(
                "UPDATE jobs SET version = ?, status = ?, lease_id = ?, document = ? "
                "WHERE job_id = ? AND version = ?",
                (*stored, job_id, old.version),
            )
            if updated.rowcount != 1:
                raise _changed(old)
            if change.forget_rounds_from is not None:
                connection.execute(
                    "DELETE FROM rounds WHERE job_id = ? AND round >= ?",
                    (job_id, change.forget_rounds_from),
                )
            connection.executemany(
                "INSERT OR REPLACE INTO rounds (job_id, round, ratio, document) "
                "VALUES (?, ?, ?, ?)",
                [(job_id, e.round, e.ratio, e.model_dump_json()) for e in change.rounds],
            )
            connection.executemany(
                "INSERT INTO ledger (job_id, document) VALUES (?, ?)",
                [(job_id, line.model_dump_json()) for line in change.lines],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO events (job_id, slot, number, document) "
                "VALUES (?, ?, ?, ?)",
                [
                    (job_id, event.number % KEPT_EVENTS, event.number, event.model_dump_json())
                    for event in change.events
                ],
            )
        return new

    def delete(self, record: JobRecord) -> None:
        """Remove a job and, by cascade, everything about it."""
        job_id = record.job.job_id
        with self._transaction() as connection:
            deleted = connection.execute(
                "DELETE FROM jobs WHERE job_id = ? AND version = ?", (job_id, record.version)
            )
            if deleted.rowcount != 1:
                raise _changed(record)

    def round(self, job_id: str, round_index: int) -> RoundEntry | None:
        """Return one round."""
        return self._one(
            RoundEntry, "FROM rounds WHERE job_id = ? AND round = ?", job_id, round_index
        )

    def last_round(self, job_id: str) -> RoundEntry | None:
        """Return the newest round."""
        query = "FROM rounds WHERE job_id = ? ORDER BY round DESC LIMIT 1"
        return self._one(RoundEntry, query, job_id)

    def rounds(self, job_id: str, *, first: int, limit: int) -> list[RoundEntry]:
        """Return rounds in order."""
        rows = self._read(
            "SELECT document FROM rounds WHERE job_id = ? AND round >= ? ORDER BY round LIMIT ?",
            (job_id, first, limit),
        )
        return [parsed(RoundEntry, text, job_id) for (text,) in rows]

    def ratios(self, job_id: str, *, before: int, limit: int) -> list[float]:
        """Return the newest ratios measured before a round, oldest of them first."""
        rows = self._read(
            "SELECT ratio FROM rounds WHERE job_id = ? AND round < ? AND ratio IS NOT NULL "
            "ORDER BY round DESC LIMIT ?",
            (job_id, before, limit),
        )
        return [float(ratio) for (ratio,) in reversed(rows)]

    def lines(self, job_id: str, *, skip: int = 0, limit: int | None = None) -> list[LedgerLine]:
        """Return ledger lines in the order they were written."""
        rows = self._read(
            "SELECT document FROM ledger WHERE job_id = ? ORDER BY position LIMIT ? OFFSET ?",
            (job_id, -1 if limit is None else limit, skip),
        )
        return [parsed(LedgerLine, text, job_id) for (text,) in rows]

    def events(self, record: JobRecord, *, after: int, limit: int) -> list[JobEvent]:
        """Return events of a job that are kept, in order."""
        job_id = record.job.job_id
        rows = self._read(
            "SELECT document FROM events WHERE job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (job_id, after, limit),
        )
        return [parsed(JobEvent, text, job_id) for (text,) in rows]

    def check(self) -> None:
        """Raise `StoreError` when the file cannot be read."""
        self._read("SELECT 1", ())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _one(self, kind: type[M], query: str, *parameters: object) -> M | None:
        rows = self._read(f"SELECT job_id, document {query}", parameters)
        return parsed(kind, rows[0][1], rows[0][0]) if rows else None

    def _records(self, condition: str, parameters: tuple[object, ...]) -> list[JobRecord]:
        """Return the jobs, as far as they can be read, oldest first."""
        rows = self._read(
            f"SELECT job_id, document FROM jobs WHERE {condition} ORDER BY position", parameters
        )
        records = (self._reader.record(text, job_id) for job_id, text in rows)
        return [record for record in records if record is not None]

    def _read(self, query: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._connection.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            f"cannot use the job database {self._path}: {error}; check that its folder exists, can "
            "be written and has free space, or set NITRO_DATABASE to another file"
        )


def _changed(record: JobRecord) -> VersionConflictError:
    return VersionConflictError(f"job {record.job.job_id} changed since version {record.version}")
