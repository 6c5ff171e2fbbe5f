"""A scaling policy's input: a round and the rounds before it, read from the book."""

from dataclasses import replace
from statistics import fmean
from typing import Any

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.rounds.order import RoundsBefore
from services.scaler.rounds.record import with_result
from services.scaler.scaling.base import PastRound, ScalingInput, ScalingPolicy
from services.scaler.scaling.boosting import convexity_ratio
from shared.contracts.rounds import LaunchCounts, RoundPlan, RoundRequest, RoundResult


def seen_by(
    policy: ScalingPolicy[Any],
    book: Book,
    record: JobRecord,
    before: RoundsBefore,
    request: RoundRequest,
) -> ScalingInput:
    """Return the input of the policy in force.

    The request has the result of the round that ends with it, which is not stored yet.
    """
    job, curvature = record.job, request.curvature
    ratios = (
        book.ratios(job.job_id, before=before.round_index, limit=policy.num_ratios)
        if policy.num_ratios
        else ()
    )
    return ScalingInput(
        round_index=before.round_index,
        actors=job.spec.actors,
        steps_to_share=job.spec.samples_per_round,
        envs_per_actor=job.spec.envs_per_actor,
        ratio=convexity_ratio(curvature),
        ratios=tuple(ratios),
        past=_past(policy, book, job.job_id, before, request),
        memory=before.memory_of(policy.parameters.policy, job),
        gradient_noise=request.gradient_noise,
        fragment_noise=None if curvature is None else curvature.fragment_noise,
        costs=record.costs,
        seed=job.spec.seed,
        evaluation_return=job.progress.last_return,
        remaining_usd=max(0.0, job.spec.stop.budget_usd - record.settled_usd),
    )


def _past(
    policy: ScalingPolicy[Any],
    book: Book,
    job_id: str,
    before: RoundsBefore,
    request: RoundRequest,
) -> tuple[PastRound, ...]:
    count = _num_rounds(policy, before)
    if not count:
        return ()
    ended = None if before.ended is None else with_result(before.ended, request.previous)
    if count == 1 and ended is not None:
        entries = [ended]
    else:
        entries = [
            ended if ended and entry.round == ended.round else entry
            for entry in book.rounds(job_id, first=before.round_index - count, limit=count)
        ]
    return tuple(past_of(e.last.plan, e.result, e.last.launches) for e in entries)


def _num_rounds(policy: ScalingPolicy[Any], before: RoundsBefore) -> int:
    """Return how many of the newest rounds a policy sees."""
    # All rounds after the one that has just ended are open: their returns are unknown.
    still_open = before.open_rounds - 1 if policy.num_rounds > 1 else 0
    return min(policy.num_rounds + still_open, before.round_index)


def past_of(
    plan: RoundPlan, result: RoundResult | None, launches: LaunchCounts | None = None
) -> PastRound:
    """Return a round as a policy sees it."""
    known = PastRound(
        round_index=plan.round,
        requested=plan.requested,
        num_actors=plan.num_actors,
        step_s=None if launches is None else launches.step_s,
        call_overhead_s=None if launches is None else launches.call_overhead_s,
    )
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
