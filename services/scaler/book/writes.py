"""Writes of a job: atomic, with large deletions in earlier steps that leave no partial round.

Plain functions: the book calls them by `look`.
"""

import itertools
import logging
from collections.abc import Callable, Sequence

from services.scaler.book import layout
from services.scaler.book.pages import Pages
from services.scaler.book.records import Change, JobRecord
from services.scaler.book.table import (
    MAX_ITEMS,
    ConflictError,
    Expected,
    Item,
    Key,
    StoreError,
    Table,
)

_LOG = logging.getLogger(__name__)


class FencedError(StoreError):
    """Another process writes the same table: this process stops writing."""


class Writes(Pages):
    """Exclusive writes to a table."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.on_fenced: Callable[[], None] = lambda: None
        """Called when another process writes the same table."""
        self.fenced = False

    def _write_change(self, change: Change, puts: Sequence[Item], guard: Expected) -> None:
        groups = self._forgotten(change, puts)
        deletes = self._delete_ahead(groups, guard, room=MAX_ITEMS - len(puts))
        self._write(puts, deletes, expect=guard)

    def _delete(self, record: JobRecord) -> None:
        key = layout.job_key(record.job.job_id)
        others = [i.key for i in self._of(record.job.job_id) if i.key != key]
        guard = {key: record.version}
        last = [key, layout.row_key(record)]
        if (used := record.idempotency_key) is not None:
            last.append(layout.idempotency_key(used))
        self._delete_ahead([[other] for other in others], guard, room=0)
        self._write((), last, expect=guard)

    def _forgotten(self, change: Change, puts: Sequence[Item]) -> list[list[Key]]:
        """Return the keys that go with a change, by rounds, the newest first."""
        first = change.forget_rounds_from
        if first is None:
            return []
        job_id, kept = change.record.job.job_id, {item.key for item in puts}
        items = [
            item
            for wanted in (layout.rounds_from(first), layout.ratios_from(first))
            for item in self._of(job_id, wanted)
            if item.key not in kept
        ]
        items.sort(key=layout.number_of, reverse=True)
        return [
            [item.key for item in of_round]
            for _, of_round in itertools.groupby(items, layout.number_of)
        ]

    def _delete_ahead(
        self, groups: Sequence[Sequence[Key]], guard: Expected, *, room: int
    ) -> list[Key]:
        """Delete the items that exceed the `room` of the next write; return the rest.

        It checks the job's version and deletes whole groups in order. So an interruption leaves a
        valid job with fewer of the doomed rounds, and the decision is repeated.
        """
        keys: list[Key] = []
        for group in groups:
            if len(keys) + len(group) > MAX_ITEMS - len(guard):
                self._write((), keys, expect=guard)
                keys = []
            keys += group
        if len(keys) > room:
            self._write((), keys, expect=guard)
            keys = []
        return keys

    def _write(
        self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected
    ) -> None:
        self.require_ours()
        try:
            self._table.write(puts, deletes, expect=expect)
        except ConflictError as error:
            self.fenced = True
            _LOG.critical("another scaler writes here: this one ends", extra={"why": str(error)})
            self.on_fenced()
            raise FencedError(str(error)) from error

    def require_ours(self) -> None:
        """Raise `FencedError` once another scaler was found to write the same table."""
        if self.fenced:
            raise FencedError("another scaler writes to the same table: this one ends")
