"""What only the SQLite file has to say: which cannot be used."""

from pathlib import Path

import pytest

from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import StoreError


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
        SqliteTable(path)
