"""Changes of a running job's number of actors: another policy, or a pinned number.

A change holds from the first undecided round, also when later rounds are repeated; earlier rounds
that are repeated keep their policy. So an interrupted job ends like an uninterrupted one.
"""

import logging

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.refusals import conflict, found, invalid
from services.scaler.rounds.order import RoundsBefore
from services.scaler.rounds.record import switched
from shared.contracts.job_rules import require_scaling
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, ScalingRequest
from shared.contracts.problem import FieldError
from shared.contracts.scaling_spec import FixedScaling, Policy

_LOG = logging.getLogger(__name__)
_MAX_SWITCH_BYTES = 200_000
"""Most bytes of a job's specification and all its changes as JSON. They are part of its record,
which is written every round and limited to 400 KB in DynamoDB; the rest is for open rounds.
"""


async def switch_scaling_policy(
    book: Book, job_id: str, request: ScalingRequest, *, now: float
) -> Job:
    """Switch a job's scaling policy for its next rounds; no effect if it is already current.

    Raises:
        ApiError: There is no such job, it is done or being deleted, the policy does not fit its
            range or environment, or it was changed too often.
    """
    async with book.turn(job_id) as turn:
        record = found(turn.record, "job", job_id)
        first = await book.look(next_round, book, record.job)
        change = _switched(record, request, first_round=first, now=now)
        if change is not None:
            record = await turn.write(change)
    _LOG.info("scaling asked for", extra={"job": job_id, "policy": request.scaling.policy})
    return record.job


def _switched(
    record: JobRecord, request: ScalingRequest, *, first_round: int, now: float
) -> Change | None:
    job = record.job
    job_id = job.job_id
    if record.deleting:
        raise conflict(f"job {job_id} is being deleted")
    if job.status == "succeeded" and not job.can_go_on:
        raise conflict(f"job {job_id} has reached its target: it has no next round")
    _require_choice(request.scaling, job.spec)
    switches = switched(job, request.scaling, first_round=first_round, now=now)
    if switches == job.switches:
        return None
    size = sum(len(part.model_dump_json().encode()) for part in (job.spec, *switches))
    if size > _MAX_SWITCH_BYTES:
        raise conflict(
            f"job {job_id} was changed too often: its specification and all changes of it "
            f"would take {size} bytes as JSON, {_MAX_SWITCH_BYTES} are allowed"
        )
    return Change(record=record.with_job(switches=switches))


def _require_choice(scaling: Policy, spec: JobSpec) -> None:
    """Refuse a policy that does not fit a job, or to which its range leaves no choice.

    Raises:
        ApiError: It is so.
    """
    actors = spec.actors
    try:
        require_scaling(spec, scaling)
    except ValueError as error:
        field = str(error).partition(" ")[0]
        message = f"{error}; a job keeps the samples and the range it was submitted with"
        raise invalid(FieldError(field=field, message=message)) from error
    if actors.min == actors.max and not isinstance(scaling, FixedScaling):
        message = (
            f"{scaling.policy!r} has no choice: the job was submitted with exactly {actors.min} "
            "actors and keeps that range; submit it with a wider range, as with --scaling "
            f"fixed:{actors.min} --actors 1:{max(32, actors.min)}"
        )
        raise invalid(FieldError(field="scaling.policy", message=message))


def next_round(book: Book, job: Job) -> int:
    """Return a job's first undecided round; plans that ended the job do not count."""
    last = book.last_round(job.job_id)
    if last is None:
        return 0
    after = last.round + 1
    return after - RoundsBefore.read(book, job, after).num_stops
