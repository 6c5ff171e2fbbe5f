"""What is answered to and remembered about a round, made from a decision; pure functions."""

from collections.abc import Sequence

from services.scaler.rounds.decision import Decision
from services.scaler.store.base import (
    AttemptKey,
    JobRecord,
    LaunchOutcome,
    PlannedAttempt,
    RoundEntry,
)
from shared.contracts.billing import LedgerLine
from shared.contracts.rounds import ActorTrouble, LaunchCounts, RoundPlan, RoundRequest, RoundResult


def round_plan(
    record: JobRecord,
    round_index: int,
    request: RoundRequest,
    decision: Decision,
    settled: tuple[LedgerLine, ...],
) -> RoundPlan:
    """Return the answer to a round request."""
    return RoundPlan(
        job_id=record.job.job_id,
        round=round_index,
        attempt=request.attempt,
        policy_version=request.policy_version,
        num_actors=decision.num_actors,
        num_evaluations=decision.num_evaluations,
        requested=decision.requested,
        boosting_score=decision.score,
        ratio=decision.ratio,
        reason=decision.reason,
        deadline_s=decision.deadline_s,
        quorum=decision.quorum,
        stop=decision.stop,
        spent_usd=record.settled_usd,
        settled=settled,
    )


def sample_indices(plan: RoundPlan, request: RoundRequest) -> tuple[int, ...]:
    """Return the actor indices to launch: all, or those missing when a round is reopened."""
    if request.attempt and request.missing is not None and plan.stop is None:
        return request.missing
    return tuple(range(plan.num_actors))


def evaluation_indices(
    plan: RoundPlan, request: RoundRequest, reopened: RoundEntry | None
) -> tuple[int, ...]:
    """Return the evaluation episodes to launch: vanished ones, and those no attempt before has.

    A round that is reopened has had its episodes. One that may not be reopened, and ends the job,
    is played the final ones with the same policy: what has been launched of them counts.
    """
    attempts = () if reopened is None else reopened.attempts
    launched = max((attempt.plan.num_evaluations for attempt in attempts), default=0)
    vanished = request.missing_evaluations if reopened else ()
    again = [index for index in vanished if index < min(launched, plan.num_evaluations)]
    return (*again, *range(launched, plan.num_evaluations))


def round_entry(
    reopened: RoundEntry | None, planned: PlannedAttempt, decision: Decision
) -> RoundEntry:
    """Return the round as it is remembered: a new one, or one with another attempt."""
    if reopened is None:
        return RoundEntry(
            round=planned.plan.round,
            attempts=(planned,),
            ratio=decision.measured_ratio,
            memory=decision.memory,
        )
    return reopened.model_copy(update={"attempts": (*reopened.attempts, planned)})


def with_result(entry: RoundEntry, result: RoundResult | None) -> RoundEntry:
    """Return a round with what the learner made of it; the first result stays."""
    return entry if entry.result is not None else entry.model_copy(update={"result": result})


def with_counts(entry: RoundEntry, key: AttemptKey, outcome: LaunchOutcome) -> RoundEntry:
    """Return a round with what became of one launch; of one before a resume nothing is kept."""
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


def learner_seconds(result: RoundResult | None, allowance_s: float) -> float:
    """Return the learner's own time in a round; what it was allowed when it does not say."""
    if result is None:
        return allowance_s
    timing = result.timing
    return timing.learner_s


def overhead_seconds(result: RoundResult | None) -> float:
    """Return what publishing the policy and asking for the round took; 0 when nobody says."""
    return 0.0 if result is None else result.timing.plan_s
