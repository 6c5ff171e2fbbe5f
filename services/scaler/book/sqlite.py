"""A table in one SQLite file: one process, write-ahead log."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from services.scaler.book.table import (
    ALL,
    ConflictError,
    Expected,
    Item,
    Key,
    Range,
    StoreError,
    require_room,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    pk TEXT NOT NULL,
    sk TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pk, sk)
)
"""
_PAGE = 1000
T = TypeVar("T")


class SqliteTable:
    """A `Table` in one file. One connection, one lock: pages for people are read on threads."""

    def __init__(self, path: Path) -> None:
        """Open the file, making it and its folder if missing.

        Raises:
            StoreError: The folder or the file cannot be written, or is no database.
        """
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # SQLite's side files inherit its mode
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            # NORMAL keeps every commit through a crash of this process. Only a power cut may lose
            # the newest commits; then a round may be decided and launched again.
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(SCHEMA)
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from error

    def get(self, key: Key) -> Item | None:
        """Return an item."""
        rows = self._read("SELECT version, body FROM items WHERE pk = ? AND sk = ?", key)
        return Item(key, rows[0][1], rows[0][0]) if rows else None

    def query(self, partition: str, wanted: Range = ALL) -> Iterator[Item]:
        """Yield items of a partition."""
        first, last, size = wanted.first, wanted.last, wanted.page or _PAGE
        order = "DESC" if wanted.newest_first else "ASC"
        seen: str | None = None
        while True:
            rows = self._read(
                "SELECT sk, version, body FROM items WHERE pk = ? AND sk >= ? AND sk <= ? "
                f"AND sk IS NOT ? ORDER BY sk {order} LIMIT ?",
                (partition, first, last, seen, size),
            )
            for sk, version, body in rows:
                yield Item((partition, sk), body, version)
            if len(rows) < size:
                return
            seen = rows[-1][0]
            first, last = (first, seen) if wanted.newest_first else (seen, last)

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        """Write and delete items: all or none."""
        require_room(puts, deletes, expect)
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    self._require(expect)
                    self._connection.executemany(
                        "DELETE FROM items WHERE pk = ? AND sk = ?", deletes
                    )
                    self._connection.executemany(
                        "INSERT OR REPLACE INTO items (pk, sk, version, body) VALUES (?, ?, ?, ?)",
                        [(*item.key, item.version, item.body) for item in puts],
                    )
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._unusable(error) from error

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call directly: a write takes 0.1 ms, as long as starting it on a thread."""
        return call()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _require(self, expect: Expected) -> None:
        for key, version in expect.items():
            found = self._connection.execute(
                "SELECT version FROM items WHERE pk = ? AND sk = ?", key
            ).fetchone()
            if (None if found is None else found[0]) != version:
                raise ConflictError(f"{' '.join(key)} is not at version {version} any more")

    def _read(self, query: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._connection.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            f"cannot use the job database {self._path}: {error}; check that its folder exists, can "
            "be written and has free space, or set NITRO_DATABASE to another file"
        )
