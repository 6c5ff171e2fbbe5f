"""Reads of one job's rounds, ratios, ledger and events from the table."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from services.scaler.book import layout
from services.scaler.book.attempts import RoundEntry
from services.scaler.book.reading import parsed
from services.scaler.book.records import JobRecord
from services.scaler.book.table import ALL, Item, Range, Table
from shared.contracts.billing import LedgerLine
from shared.contracts.message import Message
from shared.contracts.views.events import KEPT_EVENTS, JobEvent

M = TypeVar("M", bound=Message)


class Pages:
    """Reads about jobs, from any thread."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def round(self, job_id: str, round_index: int) -> RoundEntry | None:
        """Return one round."""
        items = self._of(job_id, layout.parts_of(round_index))
        return next(_all_parsed(RoundEntry, layout.rounds_of(items), job_id), None)

    def last_round(self, job_id: str) -> RoundEntry | None:
        """Return the newest round."""
        newest = self._of(job_id, layout.newest_rounds(page=1))
        for _, parts in itertools.groupby(newest, layout.number_of):
            texts = layout.rounds_of(reversed(list(parts)))
            for entry in _all_parsed(RoundEntry, texts, job_id):
                return entry
        return None

    def rounds(self, job_id: str, *, first: int, limit: int) -> list[RoundEntry]:
        """Return rounds in order."""
        items = self._of(job_id, layout.rounds_from(first, page=limit))
        texts = itertools.islice(layout.rounds_of(items), limit)
        return list(_all_parsed(RoundEntry, texts, job_id))

    def newest_rounds(self, job_id: str, number: int) -> list[RoundEntry]:
        """Return the newest rounds in order."""
        last = self.last_round(job_id)
        if last is None or number == 1:
            return [] if last is None else [last]
        return self.rounds(job_id, first=max(0, last.round + 1 - number), limit=number)

    def ratios(self, job_id: str, *, before: int, limit: int) -> list[float]:
        """Return the newest ratios measured before a round, oldest first."""
        # One extra: the round itself may be among them, planned for an earlier learner.
        newest = self._of(job_id, layout.newest_ratios(page=limit + 1))
        earlier = (item for item in newest if layout.number_of(item) < before)
        return [float(item.body) for item in itertools.islice(earlier, limit)][::-1]

    def lines(self, job_id: str, *, skip: int = 0, limit: int | None = None) -> list[LedgerLine]:
        """Return ledger lines in writing order, without the first `skip`."""
        items = self._of(job_id, layout.lines_from(skip))
        texts = itertools.islice(layout.lines_of(items, skip=skip), limit)
        return list(_all_parsed(LedgerLine, texts, job_id))

    def events(self, record: JobRecord, *, after: int, limit: int) -> list[JobEvent]:
        """Return the first `limit` kept events of a job after a number, in order."""
        newest, job_id = record.num_events, record.job.job_id
        first = max(after + 1, newest + 1 - KEPT_EVENTS, 1)
        last = min(newest, first + limit - 1)
        if last < first:
            return []
        texts = (
            item.body
            for places in layout.event_ranges(first, last)
            for item in self._of(job_id, places)
        )
        found = _all_parsed(JobEvent, texts, job_id)
        # A newer event may have overwritten the oldest meanwhile.
        return [event for event in found if first <= event.number <= last]

    def _of(self, job_id: str, wanted: Range = ALL) -> Iterator[Item]:
        return self._table.query(layout.partition(job_id), wanted)


def _all_parsed(kind: type[M], texts: Iterable[str], job_id: str) -> Iterator[M]:
    return (parsed(kind, text, job_id) for text in texts)
