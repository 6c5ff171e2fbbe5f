"""What keeps the scaler's memory: items by two keys, read one by one or in order, written whole.

A SQLite file and a DynamoDB table both stand behind `Table`, with one layout (`layout`), so that
every test on a file tries what runs on AWS.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""Partition, and place in it."""
Expected = Mapping[Key, int | None]
"""Versions that items must have for a write to take effect; None where there must be none."""
MAX_ITEMS = 100
"""Items of one write, those that are only expected included: as many as DynamoDB takes."""
LAST = "~"
"""Greater than any letter and digit, for the end of a range of names."""


@dataclass(frozen=True, slots=True)
class Item:
    """Text under a key."""

    key: Key
    body: str
    version: int = 0


class StoreError(RuntimeError):
    """The table cannot be used; the message names it and the fix."""


class ConflictError(RuntimeError):
    """An item is not as it was expected: somebody else has written it."""


class Table(Protocol):
    """Items, durable, for any thread. Where it cannot be used, `StoreError` is raised."""

    def get(self, key: Key) -> Item | None:
        """Return an item as it is now."""

    def query(
        self,
        partition: str,
        *,
        first: str = "",
        last: str = LAST,
        newest_first: bool = False,
        page: int | None = None,
    ) -> Iterator[Item]:
        """Yield the items of a partition from one name to another, both included, in order.

        They are read `page` at a time, as they are needed.
        """

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        """Write and delete items: all or none.

        Raises:
            ConflictError: An expectation does not hold.
        """

    async def run(self, call: Callable[[], T]) -> T:
        """Return what a call that uses the table returns; the loop does not wait for a network."""

    def close(self) -> None:
        """Release files and connections."""


def require_room(puts: Sequence[Item], deletes: Sequence[Key], expect: Expected) -> None:
    """Refuse a write that is larger than `MAX_ITEMS`.

    Raises:
        StoreError: It is.
    """
    size = len({item.key for item in puts}.union(deletes, expect))
    if size > MAX_ITEMS:
        raise StoreError(f"a change of {size} items exceeds {MAX_ITEMS}: make it in steps")
