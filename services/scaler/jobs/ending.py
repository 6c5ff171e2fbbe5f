"""The end of a job without a learner: by its user, its time limit or its budget."""

from services.scaler.book.records import Change, JobRecord
from services.scaler.money.account import lease_end
from services.scaler.money.accounting import Spending
from shared.contracts.jobs import StopReason


def ended(
    record: JobRecord,
    spending: Spending,
    now: float,
    stop_reason: StopReason,
    error: str | None = None,
) -> Change:
    """Return the change that ends a job without a learner; with an error the job has failed.

    It bills an earlier learner to the end of its lease.
    """
    record, lines = spending.end_job(record, lease_end(record, now))
    status = "stopped" if error is None else "failed"
    record = record.with_job(status=status, stop_reason=stop_reason, error=error, finished_at=now)
    return Change(record=record.model_copy(update={"lease": None}), lines=lines)
