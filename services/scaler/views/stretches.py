"""Stretches of a job's rounds as columns; those that cannot change any more are made once.

Whoever opens a long job asks for all of its rounds. They are read and laid out for the first one.
"""

from dataclasses import dataclass, field

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.views.curves import SoFar, curves
from shared.contracts.jobs import FINISHED
from shared.contracts.views.curves import Curves

_KEPT = 32
"""Stretches, of all jobs. One of 250 rounds takes about 0.4 MB."""
_Key = tuple[str, int, float | None, int, int]
"""Job, how often it was rewound, when it ended, round before the stretch, its longest length."""


@dataclass(kw_only=True, eq=False)
class CurveStretches:
    """Answers with a stretch of a job's rounds, on any thread."""

    book: Book
    so_far: SoFar
    _kept: dict[_Key, Curves] = field(default_factory=dict)

    def of(self, record: JobRecord, *, after: int, limit: int) -> Curves:
        """Return the rounds after one, so many at most."""
        job = record.job
        key = (job.job_id, record.rewinds, job.finished_at, after, limit)
        kept = self._kept.get(key)
        if kept is not None:
            num_rounds = max(kept.num_rounds, job.progress.rounds)
            return kept.model_copy(update={"num_rounds": num_rounds})
        entries = self.book.rounds(job.job_id, first=after + 1, limit=limit + 1)
        made = curves(record, entries, after=after, limit=limit, so_far=self.so_far)
        rounds = made.columns["round"]
        closed = bool(rounds) and made.next_after == rounds[-1]
        if closed and (job.status in FINISHED or (made.more and made.ending is None)):
            newest = [*self._kept.items()][1 - _KEPT :]
            self._kept = {**dict(newest), key: made}  # as a whole, for those who look
        return made
