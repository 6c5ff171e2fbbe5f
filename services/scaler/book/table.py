"""The scaler's storage: items by two keys, read singly or in order, written atomically.

A SQLite file and a DynamoDB table both stand behind `Table`, with one layout (`layout`), so that
tests on a file cover the layout on AWS.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""Partition and sort key."""
Expected = Mapping[Key, int | None]
"""Required versions of items for a write; None if the item must not exist."""
MAX_ITEMS = 100
"""Most items of one write, including those that are only checked: DynamoDB's limit."""
LAST = "~"
"""Greater than any letter and digit, for the end of a range of names."""


@dataclass(frozen=True, slots=True)
class Item:
    """Text under a key."""

    key: Key
    body: str
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The items of a partition from one name to another, both included, in order."""

    first: str = ""
    last: str = LAST
    newest_first: bool = False
    page: int | None = None
    """How many are read at a time; None leaves it to the table."""


ALL = Range()


class StoreError(RuntimeError):
    """The table cannot be used; the message names it and the fix."""


class ConflictError(RuntimeError):
    """An item has another version than expected: another process has written it."""


class Table(Protocol):
    """Durable items, thread-safe. Failures raise `StoreError`."""

    def get(self, key: Key) -> Item | None:
        """Return an item's current value."""

    def query(self, partition: str, wanted: Range = ALL) -> Iterator[Item]:
        """Yield items of a partition; they are read lazily."""

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        """Write and delete items: all or none.

        Raises:
            ConflictError: An expectation does not hold.
        """

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call on the table without blocking the loop on a network."""

    def close(self) -> None:
        """Release files and connections."""


def require_room(puts: Sequence[Item], deletes: Sequence[Key], expect: Expected) -> None:
    """Refuse a write that is larger than `MAX_ITEMS`.

    Raises:
        StoreError: The write is too large.
    """
    size = len({item.key for item in puts}.union(deletes, expect))
    if size > MAX_ITEMS:
        raise StoreError(f"a change of {size} items exceeds {MAX_ITEMS}: make it in steps")
