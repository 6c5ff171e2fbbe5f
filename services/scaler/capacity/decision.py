"""The capacity for the jobs: warm environments and learners, decided from values alone.

Both are billed while they are on, used or not. So they exist only as long as a job does, and warm
environments never exceed the jobs' remaining needs. If its learner has to be started, a job counts
from its submission; otherwise from its lease. Environments warm up while its learner starts, which
takes a minute or more, but not while the job waits for room. A job that has reached its time limit
or its budget no longer counts, so a stuck job has a bounded cost. A queued job has no such limit.
Its wait for a requested learner is bounded elsewhere.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.scaler.book.records import JobRecord
from services.scaler.money.kept_warm import kept_warm
from shared.contracts.jobs import JobStatus

LIVE: tuple[JobStatus, ...] = ("queued", "running", "stopping")
"""Jobs that have not ended."""
ALWAYS_UNRESERVED = 100
"""Concurrent executions that Lambda requires to stay unreserved."""
GRACE_S = 600.0
"""At its time limit a job is asked to stop; this much later its capacity ends anyway. At its budget
there is no grace, because it is asked while money for its end remains.
"""
WARM_BEFORE_LEASE_S = 900.0
"""How long environments stay warm for a job without a learner: the time of its start. If no learner
is available, they would otherwise wait for days, in no job's bill.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRule:
    """The settings of capacity."""

    provisioned: int
    """Most environments kept warm; 0 is none."""
    starts_learner: bool
    """Whether learners exist only while jobs do, and are started for them."""
    longest_job_s: float
    """Longest time that a job may wait or run with capacity."""
    reserved: int | None
    """Concurrency reserved for the actor function; None when it shares the account's."""
    spent_at: Callable[[JobRecord, float], float]
    """Returns when a job's budget will be used up, seen from now; both in Unix seconds."""
    client_grace_s: float = 60.0
    """How long an external job waits for its client."""


def environments_wanted(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> int:
    """Return how many environments to keep warm for the unfinished jobs."""
    warm = sum(
        kept_warm(record)
        for record in jobs
        if counts(record, rule, now) and (not rule.starts_learner or _has_learner(record, now))
    )
    return min(rule.provisioned, warm)


def environments_allowed(
    wanted: int, rule: CapacityRule, *, configured: int = 0, unreserved: int | None = None
) -> int:
    """Return how many of the wanted environments may be kept warm.

    Args:
        wanted: Number for the jobs.
        rule: Names the function's own reservation, if it has one.
        configured: Provisioned concurrency the alias has now, which needs no more room.
        unreserved: Unreserved concurrent executions; None if not needed.
    """
    if rule.reserved is not None:
        return min(wanted, rule.reserved)
    if unreserved is None:
        return wanted
    return min(wanted, max(configured, unreserved - ALWAYS_UNRESERVED))


def allowed_until(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> dict[str, float]:
    """Return the latest end of capacity for each job that may have it.

    Returns:
        Unix seconds, by the job's id.
    """
    return {r.job.job_id: _ends_by(r, rule, now) for r in jobs if counts(r, rule, now)}


def is_held(record: JobRecord, now: float) -> bool:
    """Whether a learner trains a job."""
    return record.lease is not None and record.lease.expires_at > now


def limits_at(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> dict[str, float]:
    """Return when each unfinished job reaches its time limit or its budget.

    Returns:
        Unix seconds, by the job's id.
    """
    return {r.job.job_id: _ends_by(r, rule, now) for r in jobs if r.job.status in LIVE}


def clients_gone_at(jobs: Sequence[JobRecord], rule: CapacityRule) -> dict[str, float]:
    """Return when each external job ends unless its client is heard from.

    Returns:
        Unix seconds, by the job's id. A job that was asked to stop waits for no new client.
    """
    return {
        record.job.job_id: _gone_at(record, rule)
        for record in jobs
        if record.job.learner == "external" and record.job.status in LIVE
    }


def _gone_at(record: JobRecord, rule: CapacityRule) -> float:
    silent_since = queued_at(record) if record.lease is None else record.lease.expires_at
    return silent_since + (0.0 if record.job.status == "stopping" else rule.client_grace_s)


def counts(record: JobRecord, rule: CapacityRule, now: float) -> bool:
    """Whether capacity may be on for a job."""
    status = record.job.status
    if status not in LIVE:
        return False
    # An external job has no learner before its client leases it.
    started = rule.starts_learner and record.job.learner != "external"
    if status == "queued" and not started:
        return False
    return now < _ends_by(record, rule, now)


def _has_learner(record: JobRecord, now: float) -> bool:
    """Whether a job has a learner, recently had one, or recently requested one."""
    start, lease = record.start, record.lease
    lately = [] if lease is None else [lease.expires_at]
    if start is not None and start.at >= queued_at(record):
        lately.append(start.since)
    return now < max(lately, default=-math.inf) + WARM_BEFORE_LEASE_S


def _ends_by(record: JobRecord, rule: CapacityRule, now: float) -> float:
    """Return when a job reaches its time limit or its budget.

    Its time begins with its first round, or before that with its learner's lease.
    """
    begun = record.wall_started_at
    if begun is None:
        begun = now if record.accounted_until is None else record.accounted_until
    return min(begun + rule.longest_job_s + GRACE_S, rule.spent_at(record, now))


def queued_at(record: JobRecord) -> float:
    """Return when a job was queued last, in Unix seconds."""
    return record.job.created_at if record.queued_at is None else record.queued_at
