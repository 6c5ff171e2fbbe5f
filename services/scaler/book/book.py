"""The book of all jobs: any thread reads, one writer per job, write-through.

There is one scaler, with one writer per job. So a change is decided once, from the current record,
and is final once it is written. A conflict means that another process writes the same table. Then
neither is known to be right: the book closes, and the process ends.

Unfinished jobs are in memory; all others are read on demand. Reads are plain functions. The loop
calls them through `look`, so that it never waits for a network.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from services.scaler.book import layout
from services.scaler.book.bell import Bell
from services.scaler.book.events import events_of
from services.scaler.book.reading import UnreadableError, left_aside, parsed
from services.scaler.book.records import Change, Decide, IdempotencyEntry, JobRecord, JobRow
from services.scaler.book.table import Item, Table
from services.scaler.book.writes import Writes
from services.scaler.off_loop import OffLoop
from shared.contracts.jobs import JobStatus
from shared.contracts.views.jobs import JobSummary

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Turn:
    """Exclusive access to a job."""

    _book: "Book"
    record: JobRecord | None
    """The job's current record; None if there is no such job."""

    async def write(self, change: Change) -> JobRecord:
        """Write a change atomically; return the new record."""
        assert self.record is not None
        self.record = await self._book._commit(self.record, change)
        return self.record


class Book(Writes):
    """All jobs, their rounds and ledgers. Changed on one loop, read by any thread.

    Reads by a job's id raise `UnreadableError`, a `StoreError`, for unreadable records.
    """

    def __init__(self, table: Table, *, now: Callable[[], float]) -> None:
        """Open the book; `now` is in Unix seconds.

        Raises:
            StoreError: The table cannot be read.
        """
        super().__init__(table)
        self._now = now
        self._long = OffLoop("long-calls-of-the-table", 1)
        self.changed = Bell()
        """Rung after every change."""
        self.on_demand_changed: Callable[[], None] = lambda: None
        """Called after a change of a job's need for capacity."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks: one per job, one for its round calls, and one for adding jobs."""
        self._statuses: dict[str, JobStatus] = {}
        self._live: dict[str, JobRecord] = {}
        self._doubted: set[str] = set()
        """Jobs with a failed write, which may have taken effect."""
        self._newest = 0
        self._all_known = False
        """Whether the table may have a job whose addition failed."""
        self._take_up(self._behind(0))

    async def look(self, read: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads the book, without blocking the loop on a network."""
        return await self._table.run(partial(read, *args, **kwargs))

    async def look_long(self, read: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads the book for a longer time."""
        return await self._long.run_to_its_end(partial(read, *args, **kwargs))

    async def find(self, job_id: str) -> JobRecord | None:
        """Return a job, from memory if possible."""
        return self._in_memory(job_id) or await self.look(self.job, job_id)

    async def create(
        self, record: JobRecord, idempotency: IdempotencyEntry | None = None
    ) -> IdempotencyEntry | None:
        """Add a job; if its key was already used, return that use instead."""
        async with self.lock(layout.JOBS):
            await self._know_all()
            if idempotency is not None:
                used = await self.look(self.idempotency, idempotency.key)
                if used is not None:
                    return used
                record = record.model_copy(update={"idempotency_key": idempotency.key})
            record = record.model_copy(update={"position": self._newest + 1})
            puts = [layout.job_item(record), layout.row_item(record)]
            if idempotency is not None:
                puts.append(layout.idempotency_item(idempotency))
            self._all_known = False
            await self.look(self._write, puts, expect={item.key: None for item in puts})
            self._all_known = True
            self._newest += 1
            self._remember(record)
        return None

    async def catch_up(self) -> None:
        """Load jobs that were added although their write failed.

        Raises:
            StoreError: The table is unreadable, or another scaler writes it.
        """
        self.require_ours()
        if not self._all_known:
            async with self.lock(layout.JOBS):
                await self._know_all()

    def idempotency(self, key: str) -> IdempotencyEntry | None:
        """Return the use of a key."""
        item = self._table.get(layout.idempotency_key(key))
        return None if item is None else parsed(IdempotencyEntry, item.body, "")

    def job(self, job_id: str) -> JobRecord | None:
        """Return a job."""
        if (live := self._in_memory(job_id)) is not None:
            return live
        item = self._table.get(layout.job_key(job_id))
        return None if item is None else parsed(JobRecord, item.body, job_id)

    def live(self, job_id: str) -> JobRecord | None:
        """Return an unfinished job from memory, without reading the table."""
        return self._live.get(job_id)

    def job_of_lease(self, lease_id: str) -> JobRecord | None:
        """Return the job a lease is on."""
        leased = (r for r in self._live.values() if r.lease and r.lease.lease_id == lease_id)
        return next(leased, None)

    def with_status(self, statuses: Collection[JobStatus]) -> list[JobRecord]:
        """Return every job in one of these non-final states, oldest first."""
        found = [r for r in self._live.values() if r.job.status in statuses]
        return sorted(found, key=lambda record: record.position)

    def with_open_bills(self) -> list[JobRecord]:
        """Return every job with launches whose bill is not final."""
        return [record for record in self._live.values() if record.has_open_bills]

    def counts(self) -> Mapping[JobStatus, int]:
        """Return the number of jobs by state."""
        return Counter([*self._statuses.values()])

    def rows(self, *, limit: int, before: int | None) -> list[tuple[int, JobSummary]]:
        """Return job summaries with their positions, newest first, only positions below `before`.

        Unreadable jobs are skipped.
        """
        items = self._table.query(layout.JOBS, layout.newest_rows(before=before, page=limit))
        found = ((layout.position_of(item), self._row(item)) for item in items)
        rows = ((position, row.summary) for (position, _), row in found if row is not None)
        return list(itertools.islice(rows, limit))

    async def change(self, job_id: str, decide: Decide) -> JobRecord | None:
        """Decide a change of a job once and write it, exclusively.

        Returns:
            The record after the change, or None when there is no such job.
        """
        async with self.turn(job_id) as turn:
            if turn.record is not None and (change := decide(turn.record)) is not None:
                await turn.write(change)
            return turn.record

    @asynccontextmanager
    async def turn(self, job_id: str) -> AsyncIterator[Turn]:
        """Take exclusive access to a job; a nested turn would deadlock."""
        async with self.lock(job_id):
            yield Turn(self, await self._current(job_id))

    async def delete(self, job_id: str) -> None:
        """Remove a job and all of its data, its record last; no effect if it is gone.

        The caller marks it as deleted first, so that it is never resumed. A repeat completes an
        interrupted removal.
        """
        async with self.turn(job_id) as turn:
            if turn.record is not None:
                with self._doubting(job_id):
                    await self.look_long(self._delete, turn.record)
                self._forget(job_id)
                self.changed.ring()

    def check(self) -> None:
        """Raise `StoreError` if the table is unreadable, or another scaler has taken it over."""
        self.require_ours()
        self._table.get(("CHECK", "CHECK"))

    def close(self) -> None:
        """Release files and connections."""
        self._long.close()
        self._table.close()

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a name, which exists while it is in use."""
        return self._locks.setdefault(name, asyncio.Lock())

    def _in_memory(self, job_id: str) -> JobRecord | None:
        return None if job_id in self._doubted else self._live.get(job_id)

    async def _know_all(self) -> None:
        """Load jobs after the known ones, if there may be any."""
        if not self._all_known:
            self._take_up(await self.look(self._behind, self._newest))

    def _behind(self, newest: int) -> list[tuple[int, str, JobRow | None, JobRecord | None]]:
        """Return the jobs after a position: position, id, row, and record if live."""
        found = []
        for item in self._table.query(layout.JOBS, layout.rows_from(newest + 1)):
            position, job_id = layout.position_of(item)
            row = self._row(item)
            try:
                record = self.job(job_id) if row is not None and row.is_live else None
            except UnreadableError as error:
                left_aside(job_id, error)
                record = None
            found.append((position, job_id, row, record))
        return found

    def _take_up(self, found: Sequence[tuple[int, str, JobRow | None, JobRecord | None]]) -> None:
        for position, job_id, row, record in found:
            self._newest = position
            if job_id in self._statuses:
                continue  # it was changed while it was read
            if row is not None:
                self._statuses[job_id] = row.summary.status
            if record is not None:
                self._live[job_id] = record
        self._all_known = True

    def _row(self, item: Item) -> JobRow | None:
        """Return a row; a row of another version is rebuilt from the job's record."""
        _, job_id = layout.position_of(item)
        try:
            return parsed(JobRow, item.body, job_id)
        except UnreadableError:
            pass
        try:
            record = self.job(job_id)
        except UnreadableError as error:
            left_aside(job_id, error)
            return None
        return None if record is None else JobRow.of(record)

    async def _commit(self, old: JobRecord, change: Change) -> JobRecord:
        """Write a change atomically; needs the job's turn."""
        job_id, lines = old.job.job_id, [line.model_dump_json() for line in change.lines]
        if change.record.num_lines != old.num_lines + len(lines):
            raise ValueError(f"job {job_id}: {len(lines)} lines are written and not counted")
        events = events_of(old, change, at=self._now())
        updated = {"version": old.version + 1, "num_events": old.num_events + len(events)}
        new = change.record.model_copy(update=updated)
        row = layout.row_item(new)
        puts = [
            layout.job_item(new),
            *([] if row == layout.row_item(old) else [row]),
            *(item for entry in change.rounds for item in layout.entry_items(job_id, entry)),
            *layout.line_items(job_id, lines, first=old.num_lines),
            *(layout.event_item(job_id, e.number, e.model_dump_json()) for e in events),
        ]
        guard = {layout.job_key(job_id): old.version}
        with self._doubting(job_id):
            # Removed rounds may number thousands.
            write = self.look if change.forget_rounds_from is None else self.look_long
            await write(self._write_change, change, puts, guard)
        self._remember(new)
        self.changed.ring()
        return new

    @contextmanager
    def _doubting(self, job_id: str) -> Iterator[None]:
        """Reread a job before its next change if the outcome of its write is unknown."""
        try:
            yield
        except BaseException:  # also if the task that waited for the write was cancelled
            self._doubted.add(job_id)
            raise

    async def _current(self, job_id: str) -> JobRecord | None:
        """Reread a job from the table into memory; needs the job's turn."""
        record = await self.find(job_id)
        if record is None:
            self._forget(job_id)
        elif job_id in self._doubted:
            self._remember(record)
        return record

    def _remember(self, record: JobRecord) -> None:
        job_id = record.job.job_id
        before = self._live.get(job_id)
        self._statuses[job_id] = record.job.status
        if record.is_live:
            self._live[job_id] = record
        else:
            self._live.pop(job_id, None)
        self._doubted.discard(job_id)
        if (None if before is None else before.demand) != record.demand:
            self.on_demand_changed()

    def _forget(self, job_id: str) -> None:
        """Drop a deleted job from memory."""
        self._statuses.pop(job_id, None)
        self._live.pop(job_id, None)
        self._doubted.discard(job_id)
