"""How much capacity the jobs are worth: warm actors and learners, decided from values alone.

Both are billed while they are on, used or not, so both exist exactly as long as a job does, and no
more environments are warm than its jobs' rounds can still need. A job counts from the moment it is
queued where its learner has to be started first, and from its lease where a learner is always
there. Environments warm up while its learner starts, which takes a minute or more, and not while it
waits for others to make room. A job that has reached its time limit, or all its money, counts no
more: a stuck one costs a bounded sum. A queued job has no such limit: it may wait for longer behind
others. How long it waits for a learner that was asked for is bounded elsewhere.
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
"""Concurrent executions Lambda wants left to functions without any reservation."""
GRACE_S = 600.0
"""Past its time limit a job is told to stop; this much later capacity ends anyway. Of its budget it
is told while there is money for its end, so it has no such time beyond that."""
WARM_BEFORE_LEASE_S = 900.0
"""How long environments are kept warm for a job without a learner: as long as one takes to start.
Where none is to be had they would wait for days, at no job's expense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRule:
    """What the settings say about capacity."""

    provisioned: int
    """Most environments kept warm; 0 is none."""
    starts_learner: bool
    """Whether learners exist only while jobs do, and are started for them."""
    longest_job_s: float
    """Longest a job may wait, or run, on capacity it keeps on."""
    reserved: int | None
    """Concurrency reserved for the actor function; None when it shares the account's."""
    spent_at: Callable[[JobRecord, float], float]
    """When nothing is left of a job's budget, seen from now, if nothing else happens to it; both
    Unix seconds."""
    client_grace_s: float = 60.0
    """How long an external job waits for its client."""


def environments_wanted(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> int:
    """Return how many environments the jobs that have not ended are worth keeping warm."""
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
        wanted: What the jobs are worth.
        rule: Names the function's own reservation, if it has one.
        configured: Provisioned concurrency the alias has now, which needs no more room.
        unreserved: Concurrent executions no function has reserved; None when nobody had to ask.
    """
    if rule.reserved is not None:
        return min(wanted, rule.reserved)
    if unreserved is None:
        return wanted
    return min(wanted, max(configured, unreserved - ALWAYS_UNRESERVED))


def allowed_until(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> dict[str, float]:
    """Return until when each of the jobs that may keep capacity on may at most.

    Returns:
        Unix seconds, by the job's id.
    """
    return {r.job.job_id: _ends_by(r, rule, now) for r in jobs if counts(r, rule, now)}


def is_held(record: JobRecord, now: float) -> bool:
    """Whether a learner has a job in hand."""
    return record.lease is not None and record.lease.expires_at > now


def limits_at(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> dict[str, float]:
    """Return when each job that has not ended has had its time, or its money.

    Returns:
        Unix seconds, by the job's id.
    """
    return {r.job.job_id: _ends_by(r, rule, now) for r in jobs if r.job.status in LIVE}


def clients_gone_at(jobs: Sequence[JobRecord], rule: CapacityRule) -> dict[str, float]:
    """Return when each external job ends for want of its client, unless that is heard of before.

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
    # An external job is nobody's before its client leases it.
    started = rule.starts_learner and record.job.learner != "external"
    if status == "queued" and not started:
        return False
    return now < _ends_by(record, rule, now)


def _has_learner(record: JobRecord, now: float) -> bool:
    """Whether a learner has a job, had it just now, or was asked for not too long ago."""
    start, lease = record.start, record.lease
    lately = [] if lease is None else [lease.expires_at]
    if start is not None and start.at >= queued_at(record):
        lately.append(start.since)
    return now < max(lately, default=-math.inf) + WARM_BEFORE_LEASE_S


def _ends_by(record: JobRecord, rule: CapacityRule, now: float) -> float:
    """Return when a job's time is up, or its money.

    Its time begins with its first round; before that, with the learner that holds it.
    """
    begun = record.wall_started_at
    if begun is None:
        begun = now if record.accounted_until is None else record.accounted_until
    return min(begun + rule.longest_job_s + GRACE_S, rule.spent_at(record, now))


def queued_at(record: JobRecord) -> float:
    """Return when a job was queued last, in Unix seconds."""
    return record.job.created_at if record.queued_at is None else record.queued_at
