"""What only the SQLite store has to say: which file cannot be used, and how it finds things."""

from pathlib import Path

import pytest

from services.scaler.store.base import StoreError
from services.scaler.store.sqlite import SqliteStore


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
