"""A job's end, told to the scaler and written into the job's folder."""

import logging

from services.learner.record.run_record import RunRecord
from services.learner.rounds.lost_round import RoundLostError
from services.learner.scaler.client import LeaseLostError, ScalerClient, ScalerError
from services.learner.scaler.held_lease import HeldLease
from shared.artifacts.store import ArtifactError, ArtifactStore
from shared.contracts.jobs import Job, JobStatus, StopReason
from shared.contracts.leases import FinishRequest
from shared.contracts.rounds import EvaluationResult

_LOG = logging.getLogger(__name__)
_LONGEST_ERROR = 4000
"""Most characters of an error with its traceback."""


def end_job(
    held: HeldLease,
    scaler: ScalerClient,
    artifacts: ArtifactStore,
    status: JobStatus,
    stop_reason: StopReason,
    *,
    evaluation: EvaluationResult | None = None,
    error: Exception | None = None,
) -> None:
    """Report the end of a leased job, and complete its folder with it and the bill.

    If the scaler does not take the report, the lease expires, and the scaler offers the job again.
    """
    job = held.job
    ended = {
        "status": status,
        "stop_reason": stop_reason,
        "error": None if error is None else _describe(error),
        "fails_again": isinstance(error, RoundLostError) and error.fails_again,
    }
    record = RunRecord(artifacts, job.job_id)
    # Before the report: its readers may open the folder at once.
    _describe_end(record, job.model_copy(update=ended))
    request = FinishRequest.model_validate(
        {"lease_id": held.lease_id, "final_evaluation": evaluation, **ended}
    )
    try:
        finished = scaler.finish(job.job_id, request)
    except ScalerError:
        _LOG.exception("end of job not reported", extra={"job": job.job_id})
        return
    _LOG.info("job ended", extra={"job": job.job_id, **ended})
    try:
        cost = scaler.cost(job.job_id)
        record.bill(cost.lines)
        record.sum_up(cost)
    except LeaseLostError:
        # Deleted by now: a write would recreate its folder.
        _LOG.info("job is gone", extra={"job": job.job_id})
        return
    except (ScalerError, ArtifactError):
        _LOG.exception("bill not written to the job's folder", extra={"job": job.job_id})
    # Last: `finished_at` marks the folder as complete.
    _describe_end(record, finished)


def _describe_end(record: RunRecord, job: Job) -> None:
    try:
        record.describe(job)
    except ArtifactError:
        _LOG.exception("end of job not written to its folder", extra={"job": job.job_id})


def _describe(error: Exception) -> str:
    """Return an error as valid Unicode: file names may contain lone surrogates."""
    # The reason of a lost round is written for users: the cause comes first.
    name = "" if isinstance(error, RoundLostError) else f"{type(error).__name__}: "
    return f"{name}{error}"[:_LONGEST_ERROR].encode(errors="replace").decode()
