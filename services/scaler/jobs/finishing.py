"""The end of a job: the learner's final report, and the rest of the bill."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from services.scaler.book.records import Change, JobRecord
from services.scaler.jobs.changes import JobChanges
from services.scaler.launching.launches import Launches
from services.scaler.money.accounting import Spending
from services.scaler.refusals import found
from services.scaler.rounds.record import evaluated
from shared.contracts.jobs import Job
from shared.contracts.leases import FinishRequest

_LOG = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class FinishService:
    """Handles the learner's final report."""

    launches: Launches
    changes: JobChanges
    now: Callable[[], float]
    spending: Spending
    finish_wait_s: float

    async def finish(self, job_id: str, request: FinishRequest) -> Job:
        """End a job. Harmless to repeat.

        Raises:
            ApiError: There is no such job, or the lease is lost.
        """
        # The last episodes reach the learner slightly before their replies reach the scaler.
        await self.launches.flights.wait_landed(job_id, timeout_s=self.finish_wait_s)

        def decide(record: JobRecord) -> Change | None:
            if record.finished_lease_id == request.lease_id:
                return None
            record.held_by(request.lease_id)
            return self._finished(record, request)

        record = found(await self.changes.change(job_id, decide), "job", job_id)
        _LOG.info(
            "job finished",
            extra={"job": job_id, "status": record.job.status, "why": record.job.stop_reason},
        )
        return record.job

    def _finished(self, record: JobRecord, request: FinishRequest) -> Change:
        now = self.now()
        record, lines = self.spending.end_job(record, now)
        record = record.with_job(
            status=request.status,
            stop_reason=request.stop_reason,
            error=request.error,
            fails_again=request.fails_again,
            finished_at=now,
            progress=evaluated(record.job.progress, request.final_evaluation),
        )
        ended = {
            "lease": None,
            "finished_lease_id": request.lease_id,
            "final_evaluation": request.final_evaluation,
        }
        return Change(record=record.model_copy(update=ended), lines=lines)
