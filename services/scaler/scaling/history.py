"""What a scaling policy is shown of a job's earlier rounds, read from the store."""

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from services.scaler.rounds.order import RoundsBefore
from services.scaler.scaling.base import PastRound, ScalingHistory
from services.scaler.scaling.registry import scaling_policy
from services.scaler.store.base import RoundEntry, Store
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundPlan, RoundRequest, RoundResult


def scaling_history(
    store: Store, job: Job, seen: RoundsBefore, request: RoundRequest
) -> ScalingHistory:
    """Return the policy in force in a round, and what it looks at.

    Args:
        store: Where the rounds are.
        job: Whose.
        seen: The round to decide about, and those before it.
        request: Brings the result of the round that ends with it, which is not stored yet.
    """
    round_index, ended = seen.round_index, seen.ended
    newest = None if seen.reopened else seen.last
    in_force = job.scaling_of(round_index)
    policy = scaling_policy(in_force)
    # The newest rounds but for the one that has just ended are open: their returns are not known.
    still_open = seen.open_rounds - 1 if policy.num_rounds > 1 else 0
    num_past = policy.num_rounds + still_open
    return ScalingHistory(
        policy=in_force,
        ratios=tuple(store.ratios(job.job_id, before=round_index, limit=policy.num_ratios)),
        past=_past(store, job.job_id, round_index, num_past, ended, request),
        memory=None if newest is None else newest.memory,
        switched_from=job.switched_from(round_index),
    )


def _past(
    store: Store,
    job_id: str,
    round_index: int,
    num_past: int,
    ended: RoundEntry | None,
    request: RoundRequest,
) -> tuple[PastRound, ...]:
    count = min(num_past, round_index)
    if not count:
        return ()
    entries: Iterable[RoundEntry]
    if count == 1 and ended is not None:
        entries = [ended]
    else:
        entries = store.rounds(job_id, first=round_index - count, limit=count)
    newest = None if ended is None else ended.round
    return tuple(
        past_of(entry.last.plan, request.previous if _is_news(entry, newest) else entry.result)
        for entry in entries
    )


def _is_news(entry: RoundEntry, newest: int | None) -> bool:
    return entry.round == newest and entry.result is None


def past_of(plan: RoundPlan, result: RoundResult | None) -> PastRound:
    """Return a round as a policy sees it."""
    known = PastRound(round_index=plan.round, requested=plan.requested, num_actors=plan.num_actors)
    if result is None:
        return known
    timing = result.timing
    return replace(
        known,
        training_return=fmean(result.episode_returns) if result.episode_returns else None,
        loss=result.stats.get("loss"),
        kl=result.stats.get("kl"),
        learner_s=timing.learner_s,
        actor_s=timing.collect_s,
    )
