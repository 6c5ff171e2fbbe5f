"""Changing how many actors a job's rounds get while it runs: another policy, or a pinned count.

The change holds from the first round that is not decided yet, and for every round made again after
it; rounds made again before it keep the policy they had. So a job that is interrupted and resumed
ends as one that was not.
"""

import logging
from collections.abc import Callable

from services.scaler.problem import conflict, invalid, not_found
from services.scaler.store.base import Change, JobRecord, RoundEntry, Store, change_job
from shared.jobs import Job, ScalingRequest, ScalingSwitch
from shared.problem import FieldError
from shared.scaling_spec import Policy, require_fit

_LOG = logging.getLogger(__name__)
_MAX_SWITCH_BYTES = 200_000
"""Of all changes of a job as JSON: they are part of its record, which is written every round."""


class ScalingDesk:
    """Switches scaling policies of jobs."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def switch(self, job_id: str, request: ScalingRequest) -> Job:
        """Decide a job's next rounds by another policy; without effect if it is in force already.

        Raises:
            ApiError: There is no such job, it is done, the policy does not fit its range, or it
                was changed too often.
        """

        def decide(record: JobRecord) -> Change | None:
            job = record.job
            if job.status == "succeeded":
                raise conflict(f"job {job_id} is {job.status}: it has no next round")
            try:
                require_fit(request.scaling, job.spec.actors)
            except ValueError as error:
                field = str(error).partition(" ")[0]
                raise invalid(FieldError(field=field, message=str(error))) from error
            first = next_round(self._store.last_round(job_id))
            switches = switched(job, request.scaling, first_round=first, now=self._now())
            if switches == job.switches:
                return None
            if sum(len(s.model_dump_json()) for s in switches) > _MAX_SWITCH_BYTES:
                raise conflict(
                    f"job {job_id} was changed too often: its changes may take "
                    f"{_MAX_SWITCH_BYTES} bytes in all"
                )
            updated = job.model_copy(update={"switches": switches})
            return Change(record=record.model_copy(update={"job": updated}))

        record = change_job(self._store, job_id, decide)
        if record is None:
            raise not_found("job", job_id)
        _LOG.info("scaling asked for", extra={"job": job_id, "policy": request.scaling.policy})
        return record.job


def next_round(last: RoundEntry | None) -> int:
    """Return the first round that is not decided yet; one that only ended the job is none."""
    if last is None:
        return 0
    return last.round if last.last.plan.stop is not None else last.round + 1


def switched(
    job: Job, scaling: Policy, *, first_round: int, now: float
) -> tuple[ScalingSwitch, ...]:
    """Return a job's changes with one more, which replaces those for the same and later rounds."""
    kept = tuple(switch for switch in job.switches if switch.round < first_round)
    before = job.model_copy(update={"switches": kept})
    planned = any(switch.round > first_round for switch in job.switches)
    if not planned and job.scaling_of(first_round) == scaling:
        return job.switches
    if before.scaling_of(first_round) == scaling:
        return kept
    return (*kept, ScalingSwitch(round=first_round, at=now, scaling=scaling))
