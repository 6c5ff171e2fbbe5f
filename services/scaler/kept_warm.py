"""How many environments a job keeps warm: as many as its scaling policy can still ask for.

They are billed while they are kept, used or not: 64 of them cost as much as a small learner. The
boosting score decays (section 5.3), so what a job can still ask for falls with every round, and is
known ahead. AWS bills warm environments in steps of five minutes: no sooner than that after the
last change are there fewer. A policy that is switched, or a job that goes back to an older
checkpoint, may want more again, and gets them at once.
"""

from services.scaler.scaling.registry import scaling_policy
from services.scaler.store.base import JobRecord
from shared.job_spec import JobSpec
from shared.jobs import Job

BILLING_STEP_S = 300.0
"""AWS rounds the time environments are kept warm up to this."""


def first_asked(spec: JobSpec) -> int:
    """Return the most actors a new job's policy can ask for."""
    return scaling_policy(spec.scaling).most_from(0, spec.actors)


def most_asked(job: Job, round_index: int) -> int:
    """Return the most actors a job's policies can ask for in a round or any later one."""
    in_force = [(round_index, job.scaling_of(round_index))]
    in_force += [(s.round, s.scaling) for s in job.switches if s.round > round_index]
    actors = job.spec.actors
    return max(scaling_policy(scaling).most_from(first, actors) for first, scaling in in_force)


def kept_warm(record: JobRecord) -> int:
    """Return how many environments a job keeps warm, as far as the deployment does."""
    if record.warm is None:
        return most_asked(record.job, record.job.progress.rounds)
    return record.warm


def worth_keeping(record: JobRecord, round_index: int, *, at: float) -> int:
    """Return how many environments a job should keep warm from a round on.

    Args:
        record: The job.
        round_index: The round that is planned.
        at: Seconds on the clock that `keeping` was given.
    """
    asked = most_asked(record.job, round_index)
    if record.warm is None or asked >= record.warm:
        return asked
    paid_until = record.warm_since + BILLING_STEP_S
    return asked if at >= paid_until else record.warm


def keeping(record: JobRecord, num: int, *, at: float, provisioned: int) -> JobRecord:
    """Return the job's record with so many environments kept warm.

    Those that are let go of are there for no later round.

    Args:
        record: The job.
        num: As many as it should keep.
        at: Seconds on the clock that bills the job.
        provisioned: Most the deployment keeps warm.
    """
    if num == record.warm:
        return record
    let_go = max(0, min(provisioned, kept_warm(record)) - min(provisioned, num))
    return record.model_copy(
        update={
            "warm": num,
            "warm_since": at,
            "environments": max(0, record.environments - let_go),
        }
    )
