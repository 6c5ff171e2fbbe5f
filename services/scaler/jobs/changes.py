"""Changes of a job that may end it, by whoever they come: learner, user, limit or lost learners."""

from collections.abc import Callable
from dataclasses import dataclass

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.gradients.service import GradientService
from services.scaler.launching.launches import Launches
from shared.contracts.jobs import FINISHED


@dataclass(frozen=True, kw_only=True, eq=False)
class JobChanges:
    """Changes jobs; of one that has ended nothing more is launched, and what ran is booked."""

    book: Book
    launches: Launches
    gradients: GradientService
    now: Callable[[], float]
    """Unix seconds."""

    def change(self, job_id: str, decide: Callable[[JobRecord], Change | None]) -> JobRecord | None:
        """Change a job as `change_job` does, and call off what is in flight if it has ended.

        Only what was in flight by then: the job may be resumed by now.
        """
        under_way, rounds = self.launches.lease_hashes(job_id), self.gradients.rounds_of(job_id)
        record = self.book.change(job_id, decide)
        if record is not None and record.job.status in FINISHED:
            self.launches.call_off(job_id, under_way)
            # A request may have set money aside since these were looked up.
            late = [(job_id, each.round, each.lease_id) for each in record.open_gradients]
            self.gradients.close_rounds(dict.fromkeys([*rounds, *late]))
        return record
