"""What only the SQLite store has to say: which file cannot be used, and why."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from services.scaler.store.base import StoreError
from services.scaler.store.sqlite import SqliteStore
from tests.services.scaler.store.records import record


def test_a_document_of_another_version_is_told_with_file_and_setting(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.sqlite3"
    with closing(SqliteStore(path)) as store:
        store.create(record(), None)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE jobs SET document = json_remove(document, '$.job.spec')")
        with pytest.raises(StoreError, match=r"jobs.sqlite3 holds a JobRecord.*NITRO_DATABASE"):
            store.job("job")


@pytest.mark.parametrize("kind", ["file_as_folder", "no_database", "folder"])
def test_a_file_that_cannot_be_used_is_named_with_the_setting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "jobs.sqlite3"
    if kind == "file_as_folder":
        path.write_text("x")
        path = path / "jobs.sqlite3"
    elif kind == "no_database":
        path.write_text("this is no database, however long one looks at it" * 20)
    else:
        path.mkdir()
    with pytest.raises(StoreError, match="jobs.sqlite3.*NITRO_DATABASE"):
        SqliteStore(path)
