"""The decision about one round, as a pure function of the known state.

The steps, in order: does the job end here; how many actors does the scaling policy ask for; how
many may the account run; how many does the budget allow. Each step that changes the number says so
in the plan's `reason`. The number of environments that the job keeps warm is decided with them:
both have to fit the budget.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from services.scaler.book.records import JobRecord
from services.scaler.launching.quota import Concurrency
from services.scaler.money.budget import (
    Affordable,
    RoundPricing,
    affordable_closing,
    affordable_round,
    closing_usd,
)
from services.scaler.money.kept_warm import (
    keeping,
    kept_by_pings,
    kept_warm,
    to_provision,
    warm_numbers,
)
from services.scaler.rounds.own_cores import (
    NOWHERE,
    Split,
    places_of,
    split,
    with_more_own,
)
from services.scaler.scaling.base import NoiseMemory, ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.billing import LedgerLine
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import RoundPlan, RoundRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """Everything a decision depends on."""

    record: JobRecord
    request: RoundRequest
    now: float
    """Unix seconds."""
    policy: ScalingPolicy[Any]
    """The scaling policy in force in the round."""
    seen: ScalingInput
    """The decision's input."""
    concurrency: Concurrency
    pricing: RoundPricing
    committed_usd: float
    """The dollars that the budget has paid or owes, without the job's end."""
    quorum_share: float
    longest_s: float = math.inf
    """How long this deployment lets a job run at a time."""
    settled: tuple[LedgerLine, ...] = ()
    """Lines of the bill that the learner does not know yet."""
    again: RoundPlan | None = None
    """The newest attempt's plan, if the round is launched again."""
    ended: tuple[StopReason, str] | None = None
    """Why the job ends, if an earlier plan has said so."""
    awaits_others: bool = False
    """Whether other rounds are open. If the job ends, its final evaluation comes after them."""

    @property
    def spec(self) -> JobSpec:
        """The user's request."""
        return self.record.job.spec

    @property
    def round_index(self) -> int:
        """Round asked for: the number of updates made so far."""
        return self.seen.round_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A round to launch, or the end of the job."""

    plan: RoundPlan
    reserve_usd: float
    closing_usd: float = 0.0
    """Dollars reserved for the job's end; 0 if this plan ends it."""
    memory: NoiseMemory | None = None
    """For the next round's decision."""
    awaits_others: bool = False
    """The job ends, but not with this plan: other rounds are open."""


def stop_reason(context: RoundContext) -> tuple[StopReason, str] | None:
    """Return the first stop condition that holds and a sentence about it, or None."""
    record, rule = context.record, context.spec.stop
    if record.job.status == "stopping":
        return "user", "the job was asked to stop"
    if record.exhausted:
        return (
            "budget",
            "the time since the last plan has used up the budget but for the end",
        )
    target, latest = rule.target_return, record.job.progress.last_return
    if target is not None and latest is not None and latest >= target:
        return "target_return", f"evaluation return {latest:g} reached the target {target:g}"
    if context.round_index >= rule.max_rounds:
        return "max_rounds", f"all {rule.max_rounds} rounds are done"
    taken, most = record.job.progress.env_steps, rule.max_env_steps
    if most is not None and taken >= most:
        return "max_env_steps", f"{taken:,} environment steps are done, of {most:,}"
    ran_s = 0.0 if record.wall_started_at is None else context.now - record.wall_started_at
    wall_s = record.wall_used_s + ran_s
    if rule.max_wall_s is not None and wall_s >= rule.max_wall_s:
        return "max_wall", f"{wall_s:.0f} s have passed, {rule.max_wall_s:g} s are allowed"
    if ran_s >= context.longest_s:
        return "max_wall", (
            f"it ran for {ran_s:.0f} s, NITRO_LONGEST_JOB_S allows {context.longest_s:g} s at a "
            "time"
        )
    return None


def decide_with_warm(context: RoundContext, *, at: float) -> tuple[JobRecord, Decision]:
    """Return the decision, and the job's record with its warm environments from this round on.

    Their number rises only if the round stays as large. It falls below the usual number only if
    there would otherwise be no round, or no final evaluation. `at` is in seconds on the clock that
    bills the job.
    """
    record, pricing = context.record, context.pricing

    def with_warm(num: int) -> tuple[JobRecord, Decision]:
        kept = keeping(record, num, at=at, provisioned=pricing.basis.provisioned)
        priced = pricing.with_warm(kept_warm(kept), pinged=kept_by_pings(kept))
        return kept, decide_round(replace(context, pricing=priced))

    needed = to_provision(record.job, context.round_index, record.warm_use, pricing.basis)
    if record.only_own:
        needed = 0
    numbers = warm_numbers(record, needed, at=at)
    usual = with_warm(numbers.usual)
    if numbers.more is not None:
        more = with_warm(numbers.more)
        if not more[1].plan.stop and _size(more[1].plan) == _size(usual[1].plan):
            return more
    if usual[1].plan.stop != "budget":
        return usual
    tried = (usual, *map(with_warm, numbers.fewer))
    going_on = (each for each in tried if not each[1].plan.stop)
    return next(going_on, max(tried, key=lambda each: each[1].plan.num_evaluations))


def decide_round(context: RoundContext) -> Decision:
    """Return the decision about a requested round."""
    if context.again is not None:
        return _decide_reopening(context, context.again)
    stop = context.ended or stop_reason(context) or _ended_by_client(context.request)
    scaling = _asked_for(context.request, context.policy.decide(context.seen))
    if stop is not None:
        return _end(context, *stop, scaling)
    concurrency, placed = context.concurrency, _placed(context, scaling.requested)
    num_functions = scaling.requested - placed.own
    if num_functions:
        granted = concurrency.granted(num_functions, open_rounds=context.spec.open_rounds)
        if granted < num_functions:
            placed = with_more_own(placed, granted=granted, num_actors=scaling.requested)
        num_functions = min(granted, scaling.requested - placed.own)
    num_actors = placed.own + num_functions
    affordable, placed = _affordable(context, num_actors, placed)
    if not affordable.num_actors:
        return _end(context, "budget", affordable.note, scaling)
    quota_note = ""
    if num_actors < scaling.requested:
        in_flight = concurrency.others_in_flight + concurrency.own_in_flight
        open_rounds = context.spec.open_rounds
        quota_note = (
            f"concurrency: {scaling.requested} actors cut to {num_actors} of {concurrency.limit} "
            f"shared by {concurrency.running_jobs} jobs, {in_flight} in flight"
            + (f", {open_rounds} rounds open" if open_rounds > 1 else "")
        )
    before = context.record.job.switched_from(context.round_index)
    switched = f"scaling changed from {before}" if before else ""
    reasons = (switched, scaling.reason, placed.reason, quota_note, affordable.note)
    return _decision(context, affordable, scaling, None, reasons, own=placed.own)


def _placed(context: RoundContext, num_actors: int) -> Split:
    """Return where the actors of a round run."""
    places = places_of(
        context.record,
        context.request.own,
        context.pricing.basis,
        num_actors=num_actors,
    )
    return NOWHERE if places is None else split(num_actors, places)


def _affordable(context: RoundContext, num_actors: int, placed: Split) -> tuple[Affordable, Split]:
    """Return the affordable part of a round, on own cores if functions are too expensive."""
    due = evaluations_due(context.spec.evaluation, context.round_index)
    found: list[tuple[Affordable, Split]] = []
    for own in dict.fromkeys((placed.own, min(placed.most_own, num_actors))):
        affordable = affordable_round(
            context.spec,
            context.pricing,
            num_actors=num_actors,
            num_evaluations=due,
            committed_usd=context.committed_usd,
            own=own,
            own_evaluations=due if own == num_actors else 0,
        )
        found.append((affordable, replace(placed, own=own)))
        if affordable.num_actors == num_actors:
            break
    return max(found, key=lambda each: each[0].num_actors)


def _ended_by_client(request: RoundRequest) -> tuple[StopReason, str] | None:
    return None if request.ends is None else (request.ends, "the client ends the job")


def _asked_for(request: RoundRequest, scaling: ScalingDecision) -> ScalingDecision:
    """Return the policy's decision, or an external client's number in its place."""
    number = request.num_actors
    if number is None:
        return scaling
    return replace(scaling, requested=number, reason=f"client: {number} actors asked for")


def evaluations_due(rule: EvaluationRule, round_index: int) -> int:
    """Return the number of a round's evaluation episodes."""
    due = rule.every_rounds > 0 and round_index % rule.every_rounds == 0
    return rule.episodes if due else 0


def _decide_reopening(context: RoundContext, plan: RoundPlan) -> Decision:
    """Return the decision about a round with missing results: relaunch them.

    The round keeps its size, score and evaluation; only missing results are launched. If the budget
    does not cover missing rollouts, the job ends. Episodes that it does not cover are left out.
    """
    pricing, request = context.pricing, context.request
    if request.own is None:
        # The present learner has no actors of its own: functions take their place.
        plan = plan.model_copy(update={"own": 0, "own_evaluations": 0})
    missing = tuple(range(plan.num_actors)) if request.missing is None else request.missing
    num_missing, num_episodes = len(missing), len(request.missing_evaluations)
    num_invocations = sum(index in plan.function_actors for index in missing)
    num_invocations += sum(i in plan.function_evaluations for i in request.missing_evaluations)
    num_own = num_missing + num_episodes - num_invocations
    reserve_usd = pricing.worst_case_usd(num_invocations, own=num_own)
    closing = 0.0 if plan.stop else closing_usd(context.spec, pricing)
    room_usd = context.spec.stop.budget_usd - context.committed_usd - closing
    told: dict[str, object] = {
        "attempt": request.attempt,
        "spent_usd": context.record.settled_usd,
        "settled": context.settled,
        "settled_from": context.record.reported_lines,
        "settled_rounds": context.record.settled_rounds(plan.round),
    }
    if reserve_usd <= room_usd:
        told["deadline_s"] = pricing.deadline_s(num_missing + num_episodes)
        told["reason"] = (
            f"attempt {request.attempt}: {num_missing} of {plan.num_actors} actors launched again"
            + (f", {num_episodes} of {plan.num_evaluations} episodes" if num_episodes else "")
        )
        again = plan.model_copy(update=told)
        return Decision(plan=again, reserve_usd=reserve_usd, closing_usd=closing)
    why = (
        f"budget: launching {num_missing + num_episodes} actors again may cost ${reserve_usd:.4f}, "
        f"${max(0.0, room_usd):.4f} are left"
    )
    if num_missing:
        return _end(context, "budget", why, context.policy.decide(context.seen))
    told |= {"num_evaluations": 0, "deadline_s": 0.0, "reason": why}
    return Decision(plan=plan.model_copy(update=told), reserve_usd=0.0, closing_usd=closing)


def _size(plan: RoundPlan) -> tuple[int, int]:
    return plan.num_actors, plan.num_evaluations


def _end(context: RoundContext, stop: StopReason, why: str, scaling: ScalingDecision) -> Decision:
    if context.awaits_others:
        waiting = _decision(context, Affordable(), scaling, stop, (why,))
        return replace(waiting, awaits_others=True)
    pricing = context.pricing
    if context.record.exhausted:
        # The learner's own time was reserved for the time since it was told to end.
        pricing = replace(pricing, learner_allowance_s=0.0)
    fewest = context.spec.actors.min
    own = _placed(context, fewest).own == fewest
    closing = affordable_closing(
        context.spec, pricing, committed_usd=context.committed_usd, own=own
    )
    return _decision(context, closing, scaling, stop, (why, closing.note), all_own=own)


def _decision(
    context: RoundContext,
    affordable: Affordable,
    scaling: ScalingDecision,
    stop: StopReason | None,
    reasons: tuple[str, ...],
    *,
    own: int = 0,
    all_own: bool = False,
) -> Decision:
    num_invocations = affordable.num_actors + affordable.num_evaluations
    all_own = all_own or 0 < own == affordable.num_actors
    plan = RoundPlan(
        job_id=context.record.job.job_id,
        round=context.round_index,
        attempt=context.request.attempt,
        policy_version=context.request.policy_version,
        num_actors=affordable.num_actors,
        num_evaluations=affordable.num_evaluations,
        own=own,
        own_evaluations=affordable.num_evaluations if all_own else 0,
        requested=0 if stop else scaling.requested,
        boosting_score=None if stop else scaling.score,
        ratio=context.seen.ratio.value if scaling.ratio is None else scaling.ratio,
        reason="; ".join(reason for reason in reasons if reason),
        fragment_noise=context.policy.needs_fragment_noise,
        deadline_s=context.pricing.deadline_s(num_invocations) if num_invocations else 0.0,
        timeout_s=context.pricing.basis.function_timeout_s,
        quorum=math.ceil(context.quorum_share * affordable.num_actors),
        stop=stop,
        spent_usd=context.record.settled_usd,
        settled=context.settled,
        settled_from=context.record.reported_lines,
        settled_rounds=context.record.settled_rounds(context.round_index),
    )
    return Decision(
        plan=plan,
        reserve_usd=affordable.reserve_usd,
        closing_usd=0.0 if stop else closing_usd(context.spec, context.pricing),
        memory=scaling.memory,
    )
