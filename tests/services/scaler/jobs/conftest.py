"""Leases on a clock of our own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.scaler.book.book import Book
from services.scaler.book.sqlite import SqliteTable
from services.scaler.jobs.leases import LeaseService
from tests.services.scaler.jobs.leasing import (
    SPENDING,
    Clock,
    lease_service,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    opened = Book(SqliteTable(tmp_path / "jobs.sqlite3"), now=lambda: 0.0)
    yield opened
    opened.close()


@pytest.fixture
def desk(book: Book, clock: Clock) -> LeaseService:
    return lease_service(book, clock, SPENDING)
