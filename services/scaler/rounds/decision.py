"""The decision about one round, as a pure function of what is known before it.

The steps, in order: does the job end here; how many actors does the scaling policy ask for; how
many may the account run; how many does the budget allow. Each step that changes the number says so
in the plan's `reason`. The number of environments that the job keeps warm is decided with them:
both have to fit the budget.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from services.scaler.capacity.kept_warm import keeping, kept_warm, warm_numbers
from services.scaler.launching.quota import granted
from services.scaler.money.budget import (
    Affordable,
    RoundPricing,
    affordable_closing,
    affordable_round,
    closing_usd,
    final_evaluations,
)
from services.scaler.scaling.base import (
    NoiseMemory,
    ScalingDecision,
    ScalingHistory,
    ScalingInput,
)
from services.scaler.scaling.boosting import convexity_ratio
from services.scaler.scaling.registry import scaling_policy
from services.scaler.store.base import JobRecord
from shared.contracts.job_spec import EvaluationRule, JobSpec, StopRule
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import Curvature, GradientNoise, RoundPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How busy the account is."""

    limit: int | None
    """Executions it may have in flight; None while unknown."""
    running_jobs: int
    others_in_flight: int
    """Invocations of other jobs under way."""
    own_in_flight: int = 0
    """Invocations of the job's other open rounds under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConditions:
    """Where a job stands when it asks for a round."""

    round_index: int
    """Round asked for: the number of updates made so far."""
    asked_to_stop: bool
    exhausted: bool = False
    """Whether the time it was held without a plan has used the budget up."""
    latest_return: float | None
    """Mean return of the newest evaluation."""
    wall_s: float
    """Time since the first round, without the time between a stop and a resume."""
    since_start_s: float = 0.0
    """Time since the first round after it was last queued."""
    longest_s: float = math.inf
    """How long this deployment lets a job run at a time."""


def stop_reason(rule: StopRule, conditions: StopConditions) -> tuple[StopReason, str] | None:
    """Return the first condition met and a sentence about it, or None to go on."""
    if conditions.asked_to_stop:
        return "user", "the job was asked to stop"
    if conditions.exhausted:
        return "budget", "the time since the last plan has used the budget up"
    target, latest = rule.target_return, conditions.latest_return
    if target is not None and latest is not None and latest >= target:
        return "target_return", f"evaluation return {latest:g} reached the target {target:g}"
    if conditions.round_index >= rule.max_rounds:
        return "max_rounds", f"all {rule.max_rounds} rounds are done"
    if rule.max_wall_s is not None and conditions.wall_s >= rule.max_wall_s:
        return (
            "max_wall",
            f"{conditions.wall_s:.0f} s have passed, {rule.max_wall_s:g} s are allowed",
        )
    if conditions.since_start_s >= conditions.longest_s:
        return "max_wall", (
            f"it ran for {conditions.since_start_s:.0f} s, NITRO_LONGEST_JOB_S allows "
            f"{conditions.longest_s:g} s at a time"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """Everything a decision depends on."""

    spec: JobSpec
    conditions: StopConditions
    curvature: Curvature | None
    gradient_noise: GradientNoise | None
    committed_usd: float
    settled_usd: float
    """The part of it that is spent."""
    concurrency: Concurrency
    pricing: RoundPricing
    quorum_share: float
    history: ScalingHistory
    ended: tuple[StopReason, str] | None = None
    """Why the job ends, where an earlier plan has said so already."""
    awaits_others: bool = False
    """Whether other rounds are open: should the job end, its final evaluation comes after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A round to launch, or the end of the job."""

    num_actors: int
    num_evaluations: int
    requested: int
    score: float | None
    ratio: float | None
    """Ratio the score was made of."""
    measured_ratio: float | None
    """Ratio of this round's own curvature; the next rounds look back at it."""
    reason: str
    deadline_s: float
    quorum: int
    stop: StopReason | None
    reserve_usd: float
    memory: NoiseMemory | None
    """For the next round's decision."""
    awaits_others: bool = False
    """The job ends, but not with this plan: other rounds are open."""


def decide_round(context: RoundContext) -> Decision:
    """Return what to do about the round a learner asked for."""
    stop = context.ended or stop_reason(context.spec.stop, context.conditions)
    scaling = _scaling_decision(context)
    if stop is not None:
        return _end(context, stop[0], stop[1], scaling)
    concurrency = context.concurrency
    num_actors = granted(
        scaling.requested,
        limit=concurrency.limit,
        running_jobs=concurrency.running_jobs,
        others_in_flight=concurrency.others_in_flight,
        own_in_flight=concurrency.own_in_flight,
        open_rounds=context.spec.open_rounds,
    )
    affordable = affordable_round(
        context.spec,
        context.pricing,
        num_actors=num_actors,
        num_evaluations=evaluations_due(context.spec.evaluation, context.conditions.round_index),
        committed_usd=context.committed_usd,
    )
    if not affordable.num_actors:
        return _end(context, "budget", affordable.note, scaling)
    quota_note = ""
    if num_actors < scaling.requested:
        in_flight = concurrency.others_in_flight + concurrency.own_in_flight
        quota_note = (
            f"concurrency: {scaling.requested} actors cut to {num_actors} of {concurrency.limit} "
            f"shared by {concurrency.running_jobs} jobs, {in_flight} in flight"
            f"{_share_note(context.spec.open_rounds)}"
        )
    before = context.history.switched_from
    switched = f"scaling changed from {before}" if before else ""
    return _decision(
        context,
        affordable,
        scaling,
        None,
        (switched, scaling.reason, quota_note, affordable.note),
    )


def decide_reopening(
    context: RoundContext, plan: RoundPlan, *, num_missing: int, num_episodes: int = 0, attempt: int
) -> Decision:
    """Return what to do about a round of which too little arrived: launch what is missing again.

    The round keeps its size, its score and its evaluation; only what is missing is launched. The
    job ends without the money for missing rollouts; without that for mere episodes they stay out.

    Args:
        context: Where the job stands.
        plan: The newest attempt at the round.
        num_missing: Rollouts to launch again.
        num_episodes: Evaluation episodes to launch again.
        attempt: Number of the new attempt.
    """
    pricing = context.pricing
    num_invocations = num_missing + num_episodes
    reserve_usd = pricing.worst_case_usd(num_invocations)
    closing = 0.0 if plan.stop else closing_usd(context.spec, pricing)
    room_usd = context.spec.stop.budget_usd - context.committed_usd - closing
    again = Decision(
        num_actors=plan.num_actors,
        num_evaluations=plan.num_evaluations,
        requested=plan.requested,
        score=plan.boosting_score,
        ratio=plan.ratio,
        measured_ratio=None,
        reason=(
            f"attempt {attempt}: {num_missing} of {plan.num_actors} actors launched again"
            + (f", {num_episodes} of {plan.num_evaluations} episodes" if num_episodes else "")
        ),
        deadline_s=pricing.deadline_s(num_invocations),
        quorum=plan.quorum,
        stop=plan.stop,
        reserve_usd=reserve_usd,
        memory=None,  # the round keeps what its first attempt left behind
    )
    if reserve_usd <= room_usd:
        return again
    why = (
        f"budget: launching {num_invocations} actors again may cost ${reserve_usd:.4f}, "
        f"${max(0.0, room_usd):.4f} are left"
    )
    if num_missing:
        return _end(context, "budget", why, _scaling_decision(context))
    return replace(again, num_evaluations=0, deadline_s=0.0, reserve_usd=0.0, reason=why)


def decide_with_warm(
    record: JobRecord,
    context: RoundContext,
    decide: Callable[[RoundContext], Decision],
    *,
    at: float,
) -> tuple[JobRecord, Decision]:
    """Return the job's record with what it keeps warm from this round on, and the decision.

    More are kept than before only where that costs the round nothing, and fewer than usual only
    where there would be no round otherwise, or no final evaluation.

    Args:
        record: The job.
        context: What is decided about; prices and sizes are the deployment's.
        decide: Decides about a context.
        at: Seconds on the clock that bills the job.
    """

    def with_warm(num: int) -> tuple[JobRecord, Decision]:
        pricing = context.pricing
        kept = keeping(record, num, at=at, provisioned=pricing.basis.provisioned)
        return kept, decide(replace(context, pricing=pricing.with_warm(kept_warm(kept))))

    numbers = warm_numbers(record, context.conditions.round_index, at=at)
    usual = with_warm(numbers.usual)
    if numbers.more is not None:
        more = with_warm(numbers.more)
        if not more[1].stop and _size(more[1]) == _size(usual[1]):
            return more
    if usual[1].stop != "budget":
        return usual
    tried = (usual, *map(with_warm, numbers.fewer))
    going_on = (each for each in tried if not each[1].stop)
    return next(going_on, max(tried, key=lambda each: each[1].num_evaluations))


def evaluations_due(rule: EvaluationRule, round_index: int) -> int:
    """Return how many evaluation episodes run beside a round."""
    due = rule.every_rounds > 0 and round_index % rule.every_rounds == 0
    return rule.episodes if due else 0


def _size(decision: Decision) -> tuple[int, int]:
    return decision.num_actors, decision.num_evaluations


def _share_note(open_rounds: int) -> str:
    return f", {open_rounds} rounds open" if open_rounds > 1 else ""


def _scaling_decision(context: RoundContext) -> ScalingDecision:
    spec, conditions, history = context.spec, context.conditions, context.history
    return scaling_policy(history.policy).decide(
        ScalingInput(
            round_index=conditions.round_index,
            actors=spec.actors,
            ratios=history.ratios,
            ratio=convexity_ratio(context.curvature),
            gradient_noise=context.gradient_noise,
            seed=spec.seed,
            past=history.past,
            evaluation_return=conditions.latest_return,
            remaining_usd=max(0.0, spec.stop.budget_usd - context.settled_usd),
            memory=history.memory,
        )
    )


def _end(context: RoundContext, stop: StopReason, why: str, scaling: ScalingDecision) -> Decision:
    if context.awaits_others:
        nothing = Affordable(num_actors=0, num_evaluations=0, reserve_usd=0.0, note="")
        waiting = _decision(context, nothing, scaling, stop, (why,))
        return replace(waiting, awaits_others=True)
    closing = affordable_closing(
        context.spec,
        context.pricing,
        committed_usd=context.committed_usd,
        num_evaluations=final_evaluations(context.spec),
    )
    return _decision(context, closing, scaling, stop, (why, closing.note))


def _decision(
    context: RoundContext,
    affordable: Affordable,
    scaling: ScalingDecision,
    stop: StopReason | None,
    reasons: tuple[str, ...],
) -> Decision:
    num_invocations = affordable.num_actors + affordable.num_evaluations
    share = context.quorum_share
    return Decision(
        num_actors=affordable.num_actors,
        num_evaluations=affordable.num_evaluations,
        requested=0 if stop else scaling.requested,
        score=None if stop else scaling.score,
        ratio=scaling.ratio,
        measured_ratio=convexity_ratio(context.curvature).value,
        reason="; ".join(reason for reason in reasons if reason),
        deadline_s=context.pricing.deadline_s(num_invocations) if num_invocations else 0.0,
        quorum=math.ceil(share * affordable.num_actors),
        stop=stop,
        reserve_usd=affordable.reserve_usd,
        memory=scaling.memory,
    )
