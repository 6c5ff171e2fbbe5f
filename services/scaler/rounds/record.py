"""Answers, reservations and records of a round and its job; pure functions."""

from collections.abc import Sequence

from services.scaler.book.attempts import (
    AttemptKey,
    LaunchOutcome,
    OpenAttempt,
    PlannedAttempt,
    RoundEntry,
)
from services.scaler.book.records import JobRecord
from services.scaler.launching.orders import LaunchOrder
from services.scaler.money.account import NO_TIMES, Billed, LearnerTimes
from services.scaler.money.accounting import Spending
from services.scaler.money.kept_warm import kept_by_pings, kept_warm
from services.scaler.money.ledger import NOTHING_LAUNCHED
from services.scaler.rounds.decision import Decision
from services.scaler.rounds.order import RoundsBefore
from services.scaler.scaling.base import NoiseMemory
from shared.contracts.going_on import MOST_LOST_REPLAYS, without_replays
from shared.contracts.jobs import Job, JobProgress, ScalingSwitch
from shared.contracts.rounds import (
    ActorTrouble,
    EvaluationResult,
    LaunchCounts,
    RoundPlan,
    RoundRequest,
    RoundResult,
)
from shared.contracts.scaling_spec import Policy


def reserved(
    record: JobRecord,
    order: LaunchOrder,
    decision: Decision,
    now: float,
    *,
    busy: int,
    ready: int,
) -> JobRecord:
    """Return the job's record with the round's attempt open and its worst case committed.

    The job's other open rounds occupy `busy` environments; `ready` provisioned ones are ready.
    """
    started = now if record.wall_started_at is None else record.wall_started_at
    updated = {"reported_lines": record.num_lines, "wall_started_at": started}
    if decision.awaits_others:
        # Nothing is launched, and the time until the next request is that of an open round.
        return record.model_copy(update=updated)
    only_own = bool(order.plan.own) and not order.num_invocations
    record = record.model_copy(update={"only_own": only_own})
    kept = kept_warm(record)
    # More may be ready: another job's, or environments that are not released yet.
    warm = min(max(0, min(ready, kept) - busy), order.num_invocations)
    spec = record.job.spec
    attempt = OpenAttempt(
        round=order.plan.round,
        attempt=order.plan.attempt,
        lease_id=order.lease_id,
        num_invocations=order.num_invocations,
        num_evaluations=len(order.evaluations),
        num_own=order.plan.own,
        reserved_usd=decision.reserve_usd,
        warm=warm,
        kept_warm=kept,
        pinged=kept_by_pings(record),
        cold=max(0, order.num_invocations - max(warm, record.environments - busy)),
        # A search waits for all parts of its iterations: its deadline begins anew with each.
        deadline_s=None if spec.searches else order.plan.deadline_s,
        open_rounds=1 if order.plan.stop else min(spec.open_rounds, spec.stop.max_rounds),
        outcome=None if order.num_invocations else NOTHING_LAUNCHED,
    )
    used = busy + order.num_invocations
    # Without pings, environments that a round leaves idle are assumed to be released.
    before = 0 if spec.warm == "none" or only_own else record.environments
    return record.model_copy(
        update={
            **updated,
            "open_attempts": (*record.open_attempts, attempt),
            "environments": max(before, used),
            "closing_usd": decision.closing_usd,
        }
    )


def closed(
    record: JobRecord,
    request: RoundRequest,
    before: RoundsBefore,
    now: float,
    *,
    spending: Spending,
    allowance_s: float,
) -> Billed:
    """Book the time of the attempt that ends with a request, and what it achieved.

    An attempt without a result is billed `allowance_s` as the learner's own time.
    """
    ended, result = before.ended, request.previous
    times = NO_TIMES
    if ended is not None:
        times = LearnerTimes(learner_s=allowance_s) if result is None else LearnerTimes.of(result)
    record, lines = spending.end_round(record, now, times, through=before.through)
    if ended is not None and ended.result is None:
        progress = advanced(record.job.progress, ended.round + 1, result)
        measured_s = 0.0 if result is None else times.learner_s
        job = record.job.model_copy(update={"progress": progress})
        if record.job.progress.lost_replays < MOST_LOST_REPLAYS <= progress.lost_replays:
            job = _without_replays(job, before.round_index, now)
        updated = {
            "job": job,
            "longest_learner_s": max(record.longest_learner_s, measured_s),
            "lost_leases": 0,
        }
        record = record.model_copy(update=updated)
    return record, lines


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


def _without_replays(job: Job, round_index: int, now: float) -> Job:
    """Return a job that replays no more, with so few actors that each plays whole episodes."""
    scaling = without_replays(job.spec, job.described_environment)
    if scaling is None:
        return job
    switches = switched(job, scaling, first_round=round_index, now=now)
    return job.model_copy(update={"switches": switches})


def sample_indices(plan: RoundPlan, request: RoundRequest) -> tuple[int, ...]:
    """Return the actor indices to launch: all, or those missing when a round is reopened."""
    if request.attempt and request.missing is not None and plan.stop is None:
        return request.missing
    return tuple(range(plan.num_actors))


def evaluation_indices(
    plan: RoundPlan, request: RoundRequest, reopened: RoundEntry | None
) -> tuple[int, ...]:
    """Return the evaluation episodes to launch: vanished ones, and those not launched before.

    A reopened round has had its episodes. If it cannot be reopened and ends the job, the final
    episodes are played with the same policy, and launched ones count.
    """
    attempts = () if reopened is None else reopened.attempts
    launched = max((attempt.plan.num_evaluations for attempt in attempts), default=0)
    vanished = request.missing_evaluations if reopened else ()
    again = [index for index in vanished if index < min(launched, plan.num_evaluations)]
    return (*again, *range(launched, plan.num_evaluations))


def round_entry(
    reopened: RoundEntry | None,
    planned: PlannedAttempt,
    *,
    ratio: float | None,
    memory: NoiseMemory | None,
) -> RoundEntry:
    """Return the round's entry: a new one, or one with another attempt."""
    if reopened is None:
        return RoundEntry(
            round=planned.plan.round,
            attempts=(planned,),
            ratio=ratio,
            memory=memory,
        )
    return reopened.model_copy(update={"attempts": (*reopened.attempts, planned)})


def with_result(entry: RoundEntry, result: RoundResult | None) -> RoundEntry:
    """Return a round with its result; the first result stays."""
    return entry if entry.result is not None else entry.model_copy(update={"result": result})


def with_counts(entry: RoundEntry, key: AttemptKey, outcome: LaunchOutcome) -> RoundEntry:
    """Return a round with the outcome of one of its launches, if it has that launch."""
    attempts = tuple(
        a.model_copy(update={"launches": outcome.counts}) if a.key == key else a
        for a in entry.attempts
    )
    return entry.model_copy(update={"attempts": attempts})


def actor_trouble(launches: Sequence[LaunchCounts]) -> ActorTrouble:
    """Return what went wrong with a round's actors, given the counts of its attempts in order."""
    reasons = [counts.latest_failure for counts in launches if counts.latest_failure]
    return ActorTrouble(
        lost=sum(counts.failed for counts in launches),
        retried=sum(counts.reissued + counts.unreached for counts in launches),
        latest=reasons[-1] if reasons else "",
    )


def advanced(progress: JobProgress, rounds: int, result: RoundResult | None) -> JobProgress:
    """Return a job's progress after a round."""
    if result is None:
        return progress.model_copy(update={"rounds": rounds})
    updated = {
        "rounds": rounds,
        "env_steps": progress.env_steps + result.env_steps,
        "lost_replays": progress.lost_replays + result.lost_replays,
    }
    progress = progress.model_copy(update=updated)
    return evaluated(progress, result.evaluation)


def evaluated(progress: JobProgress, evaluation: EvaluationResult | None) -> JobProgress:
    """Return a job's progress after an evaluation."""
    mean = None if evaluation is None else evaluation.mean_return
    if mean is None:
        return progress
    best = mean if progress.best_return is None else max(mean, progress.best_return)
    return progress.model_copy(update={"last_return": mean, "best_return": best})
