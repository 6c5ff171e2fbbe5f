"""A round's decision from what is known before it: which money, which attempt, which policy."""

from dataclasses import replace

import pytest

from services.scaler.book.records import JobRecord
from services.scaler.launching.quota import Concurrency
from services.scaler.money.budget import closing_usd
from services.scaler.rounds.decision import (
    RoundContext,
    decide_round,
    evaluations_due,
    stop_reason,
)
from services.scaler.scaling.registry import scaling_policy
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobProgress, ScalingSwitch
from shared.contracts.rounds import RoundPlan, RoundRequest
from shared.contracts.scaling_spec import FixedScaling, NitroScaling, Policy
from shared.contracts.stop_rule import StopRule
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.money.test_budget import PRICING, SPEC, with_budget
from tests.services.scaler.scaling.seen import seen

FIVE = FixedScaling(policy="fixed", num_actors=5)


def running(spec: JobSpec = SPEC, *, spent_usd: float = 0.0, **changes: object) -> JobRecord:
    """A job's record; `changes` are of the job."""
    fields = {"job_id": "job", "environment": HOPPER, "status": "running", "created_at": 0.0}
    job = Job.model_validate({"spec": spec, **fields, **changes})
    return JobRecord(job=job, settled_usd=spent_usd)


def context(
    round_index: int = 1,
    *,
    record: JobRecord | None = None,
    scaling: Policy = FIVE,
    ratios: tuple[float, ...] = (),
    **changes: object,
) -> RoundContext:
    record = record or running()
    known = RoundContext(
        record=record,
        request=RoundRequest(lease_id="lease", policy_version=round_index),
        now=1000.0,
        policy=scaling_policy(scaling),
        seen=seen(round_index, actors=record.job.spec.actors, ratios=ratios),
        concurrency=Concurrency(limit=1000, running_jobs=1, others_in_flight=0),
        pricing=PRICING,
        committed_usd=record.committed_usd,
        quorum_share=0.5,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


PLAN = RoundPlan(
    job_id="job",
    round=1,
    attempt=0,
    policy_version=1,
    num_actors=6,
    num_evaluations=3,
    requested=16,
    boosting_score=0.75,
    ratio=4.0,
    reason="",
    deadline_s=130.0,
    quorum=3,
    stop=None,
    spent_usd=0.0,
    settled=(),
)


def reopened(spec: JobSpec, spent_usd: float, *, num_missing: int = 2) -> RoundContext:
    asked = RoundRequest(
        lease_id="lease", policy_version=1, attempt=1, missing=tuple(range(num_missing))
    )
    return context(record=running(spec, spent_usd=spent_usd), request=asked, again=PLAN)


def test_a_reopened_round_keeps_its_plan_and_pays_for_what_is_missing() -> None:
    many = PLAN.model_copy(update={"num_actors": 2500})
    again = decide_round(replace(reopened(SPEC, 0.1), again=many))
    told = {"spent_usd": 0.1, "settled_rounds": many.round}
    changed = {"attempt": 1, "deadline_s": PRICING.deadline_s(2), **told}
    reason = "attempt 1: 2 of 2500 actors launched again"
    assert again.plan == many.model_copy(update={**changed, "reason": reason})
    assert again.reserve_usd == PRICING.worst_case_usd(2)
    assert again.plan.deadline_s < PRICING.deadline_s(2500)


def test_a_round_is_reopened_as_long_as_the_end_of_the_job_stays_paid() -> None:
    spec = with_budget(SPEC, 1.0)
    most_usd = 1.0 - PRICING.worst_case_usd(2) - closing_usd(SPEC, PRICING)
    assert decide_round(reopened(spec, most_usd - 1e-9)).plan.stop is None
    ended = decide_round(reopened(spec, most_usd + 1e-6))
    plan = ended.plan
    assert (plan.stop, plan.num_actors, plan.num_evaluations) == ("budget", 0, 3)
    assert plan.requested == 0
    assert ended.reserve_usd == closing_usd(SPEC, PRICING)
    assert "$0.0000 are left" in decide_round(reopened(spec, 1.0)).plan.reason


def test_a_round_is_paid_from_what_is_neither_spent_nor_set_aside() -> None:
    room_usd = PRICING.worst_case_usd(3) + closing_usd(SPEC, PRICING)
    record = running(with_budget(SPEC, 1.0), spent_usd=1.0 - room_usd - 1e-9)
    got = decide_round(context(record=record)).plan
    assert (got.num_actors, got.requested, got.quorum) == (3, 5, 2)
    assert got.deadline_s == PRICING.deadline_s(3)
    assert "concurrency" not in got.reason
    assert "budget: 5 actors cut to 3" in got.reason


def test_the_deadline_is_for_actors_and_episodes_and_the_quorum_for_actors() -> None:
    spec = SPEC.model_copy(update={"evaluation": EvaluationRule(every_rounds=1, episodes=9)})
    decision = decide_round(context(record=running(spec)))
    plan = decision.plan
    assert (plan.num_actors, plan.num_evaluations, plan.quorum) == (5, 9, 3)
    assert plan.deadline_s == PRICING.deadline_s(14)
    assert plan.timeout_s == PRICING.basis.function_timeout_s > 0.0
    assert decision.reserve_usd == PRICING.worst_case_usd(14)


def test_a_job_that_has_ended_waits_for_its_other_rounds_and_then_plays_its_last_episodes() -> None:
    ended = context(record=running(with_budget(SPEC, 1.0)), ended=("user", "asked to stop"))
    waiting = decide_round(replace(ended, awaits_others=True))
    plan = waiting.plan
    assert (plan.stop, waiting.awaits_others, waiting.reserve_usd) == ("user", True, 0.0)
    assert (plan.num_actors, plan.num_evaluations, plan.deadline_s) == (0, 0, 0.0)
    last = decide_round(ended)
    plan = last.plan
    assert (plan.stop, last.awaits_others, plan.num_evaluations) == ("user", False, 3)
    assert (plan.requested, plan.boosting_score, plan.reason) == (0, None, "asked to stop")
    broke = running(with_budget(SPEC, 1.0), spent_usd=1.0)
    poor = replace(ended, record=broke, committed_usd=1.0)
    assert decide_round(poor).plan.reason == "asked to stop; budget: final evaluation left out"


def test_who_was_told_in_time_that_the_budget_is_used_up_has_the_final_evaluation() -> None:
    pricing = PRICING.after(100.0)  # the last update took longer than any before
    since_told_usd = 50.0 * PRICING.basis.usd_per_s
    left_usd = closing_usd(SPEC, PRICING) - since_told_usd
    record = running(with_budget(SPEC, 1.0), spent_usd=1.0 - left_usd)
    record = record.model_copy(update={"exhausted": True})
    decision = decide_round(context(record=record, pricing=pricing))
    assert (decision.plan.stop, decision.plan.num_evaluations) == ("budget", 3)
    assert decision.reserve_usd <= left_usd


def test_the_reason_a_job_ended_for_first_stays() -> None:
    last = SPEC.stop.max_rounds
    assert decide_round(context(last)).plan.stop == "max_rounds"
    assert decide_round(context(last, ended=("user", "asked to stop"))).plan.stop == "user"


def test_the_policy_in_force_decides_and_a_change_is_told() -> None:
    policy = FixedScaling(policy="fixed", num_actors=7)
    record = running(switches=(ScalingSwitch(round=1, at=0.0, scaling=policy),))
    got = decide_round(context(record=record, scaling=policy)).plan
    assert got.num_actors == 7
    assert got.reason == "scaling changed from nitro; fixed: 7 actors"


@pytest.mark.parametrize(
    ("every", "due"), [(0, [0, 0, 0, 0, 0]), (1, [4, 4, 4, 4, 4]), (2, [4, 0, 4, 0, 4])]
)
def test_evaluations_are_due_in_the_first_round_and_every_nth(every: int, due: list[int]) -> None:
    rule = EvaluationRule(every_rounds=every, episodes=4)
    assert [evaluations_due(rule, k) for k in range(5)] == due


@pytest.mark.parametrize(("own", "granted"), [(0, 2), (3, 1)])
def test_open_rounds_and_other_jobs_leave_a_round_less_and_it_says_so(
    own: int, granted: int
) -> None:
    busy = Concurrency(limit=8, running_jobs=2, others_in_flight=6, own_in_flight=own)
    spec = SPEC.model_copy(update={"algorithm": "impact", "rounds_in_flight": 2})
    got = decide_round(context(record=running(spec), concurrency=busy)).plan
    assert (got.num_actors, got.requested) == (granted, 5)
    assert got.reason == (
        f"fixed: 5 actors; concurrency: 5 actors cut to {granted} of 8 shared by 2 jobs, "
        f"{6 + own} in flight, 2 rounds open"
    )


def test_a_job_that_never_evaluates_ends_without_episodes_and_keeps_its_last_ratio() -> None:
    blind = SPEC.model_copy(update={"evaluation": EvaluationRule(every_rounds=0, episodes=3)})
    ended = context(
        record=running(blind), ended=("user", "stop"), scaling=NitroScaling(), ratios=(3.0,)
    )
    last = decide_round(ended)
    assert (last.plan.num_evaluations, last.reserve_usd) == (0, PRICING.worst_case_usd(0))
    assert (last.plan.boosting_score, last.plan.ratio) == (None, 3.0)


RULE = StopRule(max_rounds=5, target_return=100.0, max_wall_s=60.0)


def stopped_by(
    rule: StopRule,
    *,
    round_index: int = 3,
    status: str = "running",
    latest: float | None = None,
    ran_s: float = 10.0,
    longest_s: float = 3600.0,
) -> str | None:
    """Why a job stops that has run for so long, half of it before it was resumed."""
    spec = SPEC.model_copy(update={"stop": rule})
    record = running(spec, status=status, progress=JobProgress(last_return=latest))
    times = {"wall_started_at": 1000.0 - ran_s / 2, "wall_used_s": ran_s / 2}
    stopped = stop_reason(
        context(round_index, record=record.model_copy(update=times), longest_s=longest_s)
    )
    assert stopped is None or stopped[1]
    return None if stopped is None else stopped[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"latest": 99.9}, None),
        ({"round_index": 5}, "max_rounds"),
        ({"latest": 100.0}, "target_return"),
        ({"ran_s": 60.0}, "max_wall"),
        ({"status": "stopping"}, "user"),
        ({"status": "stopping", "round_index": 5, "latest": 200.0}, "user"),
        ({"round_index": 5, "latest": 200.0, "ran_s": 99.0}, "target_return"),
        ({"round_index": 5, "ran_s": 99.0}, "max_rounds"),
    ],
)
def test_the_first_condition_met_stops_a_job(changes: dict[str, object], reason: str) -> None:
    assert stopped_by(RULE, **changes) == reason  # type: ignore[arg-type]


def test_conditions_that_are_not_set_never_stop_and_a_negative_target_is_a_target() -> None:
    assert stopped_by(StopRule(max_rounds=5), latest=1e9, ran_s=1000.0) is None
    assert stopped_by(StopRule(target_return=-100.0), latest=-150.0) is None
    assert stopped_by(StopRule(target_return=-100.0), latest=-100.0) == "target_return"


def test_a_deployment_bounds_how_long_a_job_runs_at_a_time() -> None:
    rule = StopRule(max_rounds=5)
    assert stopped_by(rule, ran_s=998.0, longest_s=500.0) is None
    assert stopped_by(rule, ran_s=1000.0, longest_s=500.0) == "max_wall"
