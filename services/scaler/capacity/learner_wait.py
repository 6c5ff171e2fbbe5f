"""How long jobs wait for a learner that is started for them, and how many came for nothing.

A learner that ends before it leases a job is started again by ECS, on a GPU machine that is paid
all that time and is in no job's bill. So a job waits for a bounded time and a bounded number of
learners. Both count from when this scaler first saw it wait; while a learner has another job in
hand, none does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.scaler.capacity.decision import is_held
from services.scaler.store.base import JobRecord

MOST_STARTS = 3
"""Learners that may end before one of them has leased the job."""
_Key = tuple[str, float | None]
"""A job, and when it was queued: one that is resumed waits anew."""


@dataclass(slots=True)
class _Wait:
    since: float
    """Unix seconds."""
    ended_before: frozenset[str] | None
    """Learners that had ended by then; None as long as nobody could tell."""


class LearnerWait:
    """Watches the jobs that no learner has."""

    def __init__(self, *, longest_s: float) -> None:
        self._longest_s = longest_s
        self._waits: dict[_Key, _Wait] = {}

    def given_up(
        self, jobs: Sequence[JobRecord], ended: frozenset[str] | None, now: float
    ) -> dict[str, str]:
        """Return the jobs that have waited for too long, each with the reason.

        Args:
            jobs: Every job that has not ended.
            ended: Names of learners that have ended, as far as they are remembered; None if nobody
                can tell.
            now: Unix seconds.
        """
        waiting = () if any(is_held(record, now) for record in jobs) else jobs
        keys = {(record.job.job_id, record.queued_at) for record in waiting}
        self._waits = {
            key: self._waits.get(key) or _Wait(since=now, ended_before=ended) for key in keys
        }
        reasons = {}
        for (job_id, _), wait in self._waits.items():
            if wait.ended_before is None:
                wait.ended_before = ended
            why = self._why(wait, ended, now)
            if why is not None:
                reasons[job_id] = why
        return reasons

    def _why(self, wait: _Wait, ended: frozenset[str] | None, now: float) -> str | None:
        starts = len((ended or frozenset()) - (wait.ended_before or frozenset()))
        if starts >= MOST_STARTS:
            return (
                f"{starts} learners were started and ended before one of them took the job: the "
                "learner's log says why"
            )
        if now - wait.since < self._longest_s:
            return None
        return (
            f"no learner took the job within {self._longest_s / 60:.0f} minutes "
            "(NITRO_LEARNER_WAIT_S): the events of the learner's ECS service and its log say why"
        )
