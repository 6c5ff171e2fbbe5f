"""The same jobs in a file and in a table."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.scaler.book.book import Book
from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Table
from tests.services.scaler.book.records import (
    REGION,
    OpenBook,
    make_table,
)


@pytest.fixture(params=["sqlite", "dynamodb"])
def open_table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Table]]:
    """Open the same table again and again."""
    opened: list[Table] = []
    name = ""
    if request.param == "dynamodb":
        request.getfixturevalue("aws")
        name = make_table()

    def connect() -> Table:
        table: Table = (
            DynamoDbTable.connect(name, region=REGION)
            if name
            else SqliteTable(tmp_path / "folder" / "jobs.sqlite3")
        )
        opened.append(table)
        return table

    yield connect
    for table in opened:
        table.close()


@pytest.fixture
def open_book(open_table: Callable[[], Table]) -> OpenBook:
    """Open the same jobs again and again."""
    return lambda: Book(open_table(), now=lambda: 7.0)


@pytest.fixture
def book(open_book: OpenBook) -> Book:
    return open_book()
