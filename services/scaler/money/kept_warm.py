"""How many environments a job keeps warm: as many as one of its rounds can still need.

They are billed while they are kept, used or not: 64 of them cost as much as a small learner. The
boosting score decays (section 5.3), so what a job can still ask for falls with every round, and is
known ahead. A policy that is switched, or a job that goes back to an older checkpoint, may want
more again. AWS bills warm environments in steps of five minutes: the number changes no sooner than
that after it last did, unless the budget has no room otherwise.

Jobs with `warm: reuse` rely on environments of earlier rounds instead, which are pinged when they
idle, and those with `none` on nothing else. A job with `auto` begins with reuse; whoever plans a
round says which way costs it less by then.

Jobs whose rounds overlap keep their range's most: time is billed to the oldest round that ends, and
a number that changes while several are under way would be billed to the wrong one. So `auto` is
reuse there.
"""

from dataclasses import dataclass

from services.scaler.book.records import JobRecord
from services.scaler.scaling.registry import scaling_policy
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.money.costs import CostBasis
from shared.money.warmth import WarmUse, cheaper_way

BILLING_STEP_S = 300.0
"""AWS rounds the time environments are kept warm up to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmNumbers:
    """Numbers of environments a round may be planned with."""

    usual: int
    more: int | None
    """As many as it may need, where that is more than are kept."""
    fewer: tuple[int, ...]
    """For a round the budget has no room for otherwise; the largest first."""


def most_needed(job: Job, round_index: int) -> int:
    """Return the most environments a round of the job can need, or any later one.

    These are actors, whatever is measured, and the episodes of an evaluation beside them.
    """
    actors = job.spec.actors
    if job.spec.open_rounds > 1:
        return actors.max
    in_force = [(round_index, job.scaling_of(round_index))]
    in_force += [(s.round, s.scaling) for s in job.switches if s.round > round_index]
    most = max(scaling_policy(scaling).most_from(first, actors) for first, scaling in in_force)
    evaluation = job.spec.evaluation
    return min(actors.max, most + (evaluation.episodes if evaluation.every_rounds else 0))


def least_warm(spec: JobSpec) -> int:
    """Return how few environments a job keeps warm where its budget has no room for more."""
    if not spec.provisions:
        return 0
    return spec.actors.max if spec.open_rounds > 1 else spec.actors.min


def most_warm(spec: JobSpec) -> int:
    """Return how many environments a job keeps warm at most, whatever it measures."""
    may_provision = spec.provisions or (spec.warm == "auto" and spec.open_rounds == 1)
    return spec.actors.max if may_provision else 0


def kept_warm(record: JobRecord) -> int:
    """Return how many environments a job keeps warm, as far as the deployment does."""
    if record.warm is not None:
        return record.warm
    if any(a.kept_warm is None and a.held_s is None for a in record.open_attempts):
        # A round of an earlier version is under way, which kept the range's most.
        return record.job.spec.actors.max
    return most_needed(record.job, record.job.progress.rounds) if record.job.spec.provisions else 0


def kept_by_pings(record: JobRecord) -> int:
    """Return how many environments of earlier rounds are to be kept by pings, at most."""
    if record.only_own:
        return 0
    way = record.job.spec.warm
    if way == "reuse" or (way == "auto" and not kept_warm(record)):
        return most_needed(record.job, record.job.progress.rounds)
    return 0


def to_provision(job: Job, round_index: int, use: WarmUse, basis: CostBasis) -> int:
    """Return how many environments a job should have provisioned from a round on."""
    needed = most_needed(job, round_index)
    if job.spec.provisions:
        return needed
    decides = job.spec.warm == "auto" and job.spec.open_rounds == 1
    return needed if decides and cheaper_way(use, needed, basis) == "provisioned" else 0


def warm_numbers(record: JobRecord, needed: int, *, at: float) -> WarmNumbers:
    """Return with how many warm environments a round may be planned that should have `needed`.

    `at` is in seconds on the clock that bills the job, as `keeping` was given.
    """
    kept = kept_warm(record)
    # A change that seems to come is of before the clock was set back.
    paid = 0 <= at - record.warm_since < BILLING_STEP_S
    usual = kept if paid else min(needed, kept)
    fewer = (min(needed, usual), min(least_warm(record.job.spec), usual))
    return WarmNumbers(
        usual=usual,
        more=needed if needed > kept and not paid else None,
        fewer=tuple(num for num in dict.fromkeys(fewer) if num < usual),
    )


def keeping(record: JobRecord, num: int, *, at: float, provisioned: int) -> JobRecord:
    """Return the job's record with so many environments kept warm.

    Those that are let go of are there for no later round. `at` is in seconds on the clock that
    bills the job; the deployment keeps `provisioned` warm at most.
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
