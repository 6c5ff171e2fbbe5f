"""Changes that may end a job, from any source: learner, user, limit or lost learners."""

import asyncio
from dataclasses import dataclass

from services.scaler.book.book import Book
from services.scaler.book.records import Decide, JobRecord
from services.scaler.gradients.service import GradientService
from services.scaler.launching.launches import Launches
from shared.contracts.jobs import FINISHED


@dataclass(frozen=True, kw_only=True, eq=False)
class JobChanges:
    """Changes jobs; when a job ends, further launches stop and running ones are booked."""

    book: Book
    launches: Launches
    gradients: GradientService

    async def change(
        self, job_id: str, decide: Decide, *, waits_for_cache: bool = True
    ) -> JobRecord | None:
        """Change a job through the book, and cancel its flights if it has ended.

        Optionally it returns before running actors are notified through the cache.
        """
        async with self.book.turn(job_id) as turn:
            if turn.record is not None and (change := decide(turn.record)) is not None:
                await turn.write(change)
            record = turn.record
            if record is None or record.job.status not in FINISHED:
                return record
            lease_hashes = self.launches.call_off(record)
            self.gradients.end(record)
        await self.launches.flights.catch_up(job_id)
        await self.gradients.flights.catch_up(job_id)
        told = self.launches.cancel(job_id, lease_hashes)
        if waits_for_cache:
            await asyncio.shield(told)
        return record
