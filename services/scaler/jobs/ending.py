"""The end of a job that nobody trains: by its user, its time limit or its budget."""

from services.scaler.money.accounting import Spending, end_job
from services.scaler.store.base import Change, JobRecord
from shared.contracts.jobs import JobStatus, StopReason


def ended(
    record: JobRecord,
    spending: Spending,
    now: float,
    *,
    status: JobStatus,
    stop_reason: StopReason,
    error: str | None = None,
) -> Change:
    """Return the change that ends a job which nobody trains.

    A learner may have had it before, and not have been billed to its end: to that of its lease.
    """
    until = now if record.lease is None else min(now, record.lease.expires_at)
    record, lines = end_job(record, now=until, basis=spending.basis, clock=spending.clock)
    job = record.job.model_copy(
        update={"status": status, "stop_reason": stop_reason, "error": error, "finished_at": now}
    )
    return Change(record=record.model_copy(update={"lease": None, "job": job}), lines=lines)
