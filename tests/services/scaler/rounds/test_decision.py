"""A round's decision from what is known before it: which money, which attempt, which policy."""

from dataclasses import replace

import pytest

from services.scaler.money.budget import closing_usd
from services.scaler.rounds.decision import (
    Concurrency,
    RoundContext,
    StopConditions,
    decide_reopening,
    decide_round,
    evaluations_due,
)
from services.scaler.scaling.base import ScalingHistory
from shared.contracts.job_spec import EvaluationRule
from shared.contracts.rounds import RoundPlan
from shared.contracts.scaling_spec import FixedScaling, NitroScaling
from tests.services.scaler.money.test_budget import PRICING, SPEC, with_budget
from tests.services.scaler.running import curvature


def context(round_index: int = 1, **changes: object) -> RoundContext:
    conditions = StopConditions(
        round_index=round_index, asked_to_stop=False, latest_return=None, wall_s=0.0
    )
    known = RoundContext(
        spec=SPEC,
        conditions=conditions,
        curvature=None,
        gradient_noise=None,
        committed_usd=0.0,
        settled_usd=0.0,
        concurrency=Concurrency(limit=1000, running_jobs=1, others_in_flight=0),
        pricing=PRICING,
        quorum_share=0.5,
        history=ScalingHistory(policy=FixedScaling(policy="fixed", num_actors=5)),
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


def test_a_reopened_round_keeps_its_plan_and_pays_for_what_is_missing() -> None:
    shown = context(curvature=curvature(2.0, -1.0), settled_usd=0.1, committed_usd=0.1)
    plan = PLAN.model_copy(update={"num_actors": 2500})
    again = decide_reopening(shown, plan, num_missing=2, attempt=1)
    assert (again.num_actors, again.num_evaluations, again.requested) == (2500, 3, 16)
    assert (again.score, again.ratio, again.quorum, again.stop) == (0.75, 4.0, 3, None)
    assert again.reserve_usd == PRICING.worst_case_usd(2)
    assert again.deadline_s == PRICING.deadline_s(2) < PRICING.deadline_s(2500)


def test_a_round_is_reopened_as_long_as_the_end_of_the_job_stays_paid() -> None:
    budget_usd = 1.0
    room_usd = PRICING.worst_case_usd(2) + closing_usd(SPEC, PRICING)
    spec = with_budget(SPEC, budget_usd)
    enough = context(spec=spec, committed_usd=budget_usd - room_usd - 1e-9)
    assert decide_reopening(enough, PLAN, num_missing=2, attempt=1).stop is None
    short = context(spec=spec, committed_usd=budget_usd - room_usd + 1e-6, settled_usd=0.0)
    ended = decide_reopening(short, PLAN, num_missing=2, attempt=1)
    assert (ended.stop, ended.num_actors, ended.num_evaluations) == ("budget", 0, 3)
    assert ended.requested == 0
    assert ended.reserve_usd == closing_usd(SPEC, PRICING)
    over = context(spec=spec, committed_usd=budget_usd)
    assert "$0.0000 are left" in decide_reopening(over, PLAN, num_missing=2, attempt=1).reason


def test_a_round_is_paid_from_what_is_neither_spent_nor_set_aside() -> None:
    room_usd = PRICING.worst_case_usd(3) + closing_usd(SPEC, PRICING)
    shown = context(spec=with_budget(SPEC, 1.0), committed_usd=1.0 - room_usd - 1e-9)
    got = decide_round(shown)
    assert (got.num_actors, got.requested, got.quorum) == (3, 5, 2)
    assert got.deadline_s == PRICING.deadline_s(3)
    assert "concurrency" not in got.reason
    assert "budget: 5 actors cut to 3" in got.reason


def test_the_deadline_is_for_actors_and_episodes_and_the_quorum_for_actors() -> None:
    spec = SPEC.model_copy(update={"evaluation": EvaluationRule(every_rounds=1, episodes=9)})
    got = decide_round(context(spec=spec))
    assert (got.num_actors, got.num_evaluations, got.quorum) == (5, 9, 3)
    assert got.deadline_s == PRICING.deadline_s(14)
    assert got.reserve_usd == PRICING.worst_case_usd(14)


def test_a_job_that_has_ended_waits_for_its_other_rounds_and_then_plays_its_last_episodes() -> None:
    ended = context(ended=("user", "asked to stop"), spec=with_budget(SPEC, 1.0))
    waiting = decide_round(replace(ended, awaits_others=True))
    assert (waiting.stop, waiting.awaits_others, waiting.reserve_usd) == ("user", True, 0.0)
    assert (waiting.num_actors, waiting.num_evaluations, waiting.deadline_s) == (0, 0, 0.0)
    last = decide_round(ended)
    assert (last.stop, last.awaits_others, last.num_evaluations) == ("user", False, 3)
    assert (last.requested, last.score, last.reason) == (0, None, "asked to stop")
    poor = decide_round(replace(ended, committed_usd=1.0))
    assert poor.reason == "asked to stop; budget: no final evaluation"


def test_the_reason_a_job_ended_for_first_stays() -> None:
    last = SPEC.stop.max_rounds
    assert decide_round(context(last)).stop == "max_rounds"
    assert decide_round(context(last, ended=("user", "asked to stop"))).stop == "user"


def test_the_policy_in_force_decides_and_a_change_is_told() -> None:
    policy = FixedScaling(policy="fixed", num_actors=7)
    got = decide_round(context(history=ScalingHistory(policy=policy, switched_from="nitro")))
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
    got = decide_round(context(spec=spec, concurrency=busy))
    assert (got.num_actors, got.requested) == (granted, 5)
    assert got.reason == (
        f"fixed: 5 actors; concurrency: 5 actors cut to {granted} of 8 shared by 2 jobs, "
        f"{6 + own} in flight, 2 rounds open"
    )


def test_a_job_that_never_evaluates_ends_without_episodes_and_keeps_its_last_ratio() -> None:
    blind = SPEC.model_copy(update={"evaluation": EvaluationRule(every_rounds=0, episodes=3)})
    history = ScalingHistory(policy=NitroScaling(), ratios=(3.0,))
    last = decide_round(context(spec=blind, ended=("user", "asked to stop"), history=history))
    assert (last.num_evaluations, last.reserve_usd) == (0, PRICING.worst_case_usd(0))
    assert (last.score, last.ratio, last.measured_ratio) == (None, 3.0, None)
