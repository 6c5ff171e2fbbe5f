"""How many environments a job keeps warm: as many as one of its rounds can still need.

They are billed while they are warm, used or not: 64 of them cost as much as a small learner. The
boosting score decays (section 5.3), so a job's largest possible request falls with every round, and
is known in advance. After a switch of policy, or a return to an older checkpoint, it may rise
again. AWS bills warm environments in steps of five minutes, so the number changes at most that
often, unless the budget requires it.

Jobs with `warm: reuse` use environments of earlier rounds, which are pinged when idle; jobs with
`none` use them without pings. A job with `auto` starts with reuse; planning a round determines the
cheaper method.

Jobs with overlapping rounds keep their range's maximum: time is billed to the oldest round that
ends, so a change while several are open would be billed to the wrong round. So `auto` means reuse
there.
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
    """Numbers of warm environments for the plan of a round."""

    usual: int
    more: int | None
    """The number it may need, if more than the current number."""
    fewer: tuple[int, ...]
    """Smaller numbers for a round that is otherwise too expensive; largest first."""


def most_needed(job: Job, round_index: int) -> int:
    """Return the most environments a round of the job can need, or any later one.

    These are its actors, for any measurement, plus the episodes of an evaluation.
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
    """Return the fewest warm environments of a job with a tight budget."""
    if not spec.provisions:
        return 0
    return spec.actors.max if spec.open_rounds > 1 else spec.actors.min


def most_warm(spec: JobSpec) -> int:
    """Return the most warm environments of a job, for any measurement."""
    may_provision = spec.provisions or (spec.warm == "auto" and spec.open_rounds == 1)
    return spec.actors.max if may_provision else 0


def kept_warm(record: JobRecord) -> int:
    """Return the number of a job's warm environments, within the deployment's limit."""
    if record.warm is not None:
        return record.warm
    if any(a.kept_warm is None and a.held_s is None for a in record.open_attempts):
        # An open round of an earlier version kept the range's maximum.
        return record.job.spec.actors.max
    return most_needed(record.job, record.job.progress.rounds) if record.job.spec.provisions else 0


def kept_by_pings(record: JobRecord) -> int:
    """Return the most environments of earlier rounds to keep by pings."""
    if record.only_own:
        return 0
    way = record.job.spec.warm
    if way == "reuse" or (way == "auto" and not kept_warm(record)):
        return most_needed(record.job, record.job.progress.rounds)
    return 0


def to_provision(job: Job, round_index: int, use: WarmUse, basis: CostBasis) -> int:
    """Return the number of provisioned environments of a job from a round on."""
    needed = most_needed(job, round_index)
    if job.spec.provisions:
        return needed
    decides = job.spec.warm == "auto" and job.spec.open_rounds == 1
    return needed if decides and cheaper_way(use, needed, basis) == "provisioned" else 0


def warm_numbers(record: JobRecord, needed: int, *, at: float) -> WarmNumbers:
    """Return the possible numbers of warm environments for a round that needs `needed`.

    `at` is in seconds on the clock that bills the job, as `keeping` was given.
    """
    kept = kept_warm(record)
    # A change in the future is from before the clock was set back.
    paid = 0 <= at - record.warm_since < BILLING_STEP_S
    usual = kept if paid else min(needed, kept)
    fewer = (min(needed, usual), min(least_warm(record.job.spec), usual))
    return WarmNumbers(
        usual=usual,
        more=needed if needed > kept and not paid else None,
        fewer=tuple(num for num in dict.fromkeys(fewer) if num < usual),
    )


def keeping(record: JobRecord, num: int, *, at: float, provisioned: int) -> JobRecord:
    """Return the job's record with this many warm environments.

    Released environments are not available to later rounds. `at` is in seconds on the clock that
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
