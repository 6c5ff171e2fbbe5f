"""A database file of an earlier version: `old_database.sql` was written by the one before this."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from services.scaler.book.book import Book
from services.scaler.book.importing import import_old_file
from services.scaler.book.reading import UnreadableError
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import StoreError

OLD = Path(__file__).with_name("old_database.sql")


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "nitro.sqlite3"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(OLD.read_text())
    return path


def test_everything_an_old_file_holds_is_there_once(old_file: Path) -> None:
    for _ in range(2):  # the second start finds nothing to do
        import_old_file(old_file)
        book = Book(SqliteTable(old_file), now=lambda: 9.0)
        assert [row.job_id for _, row in book.rows(limit=9, before=None)] == ["waiting", "trained"]
        assert book.counts() == {"queued": 1, "running": 1}
        trained = book.job_of_lease("l")
        assert trained is not None
        assert (trained.job.job_id, trained.version, trained.settled_usd) == ("trained", 2, 1.0)
        assert [line.quantity for line in book.lines("trained")] == [n + 0.1 for n in range(61)]
        assert [e.round for e in book.rounds("trained", first=0, limit=9)] == [0, 1, 2]
        assert book.ratios("trained", before=9, limit=9) == [1 / 3, 1 / 3 + 2]
        assert [e.text for e in book.events(trained, after=0, limit=9)] == ["x trains it"]
        used = book.idempotency("k1")
        assert used is not None
        assert (used.job_id, trained.idempotency_key) == ("trained", "k1")
        with pytest.raises(UnreadableError, match="job broken"):
            book.job("broken")
        book.close()


async def test_a_job_of_an_old_file_goes_on_and_can_be_deleted(old_file: Path) -> None:
    import_old_file(old_file)
    book = Book(SqliteTable(old_file), now=lambda: 9.0)
    await book.delete("trained")
    assert (book.job("trained"), book.idempotency("k1"), book.lines("trained")) == (None, None, [])
    assert [row.job_id for _, row in book.rows(limit=9, before=None)] == ["waiting"]
    book.close()


def test_a_file_that_cannot_be_imported_is_left_as_it_was(old_file: Path) -> None:
    with closing(sqlite3.connect(old_file)) as file, file:
        file.execute("CREATE VIEW items AS SELECT 1")
    with pytest.raises(StoreError, match="nitro.sqlite3 into its new form"):
        import_old_file(old_file)
    with closing(sqlite3.connect(old_file)) as file:
        assert file.execute("SELECT COUNT(*) FROM ledger").fetchone() == (61,)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    import_old_file(tmp_path / "none.sqlite3")
    assert not (tmp_path / "none.sqlite3").exists()
