"""What a round is priced at before it is launched, and what of it a budget allows."""

import pytest

from services.scaler.money.budget import (
    RoundPricing,
    affordable_closing,
    affordable_round,
    closing_usd,
    smallest_budget_usd,
)
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.money.costs import CostBasis
from shared.money.prices import AWS_US_EAST_1_2026_11

TABLE = AWS_US_EAST_1_2026_11
SPEC = JobSpec.model_validate({"actors": {"min": 2, "max": 16}, "evaluation": {"episodes": 3}})


def basis(*, provisioned: int = 0) -> CostBasis:
    return CostBasis(
        prices=TABLE,
        learner_usd_per_s=TABLE.learner_usd_per_s("g6.2xlarge"),
        cpu_learner_usd_per_s=TABLE.fargate_usd_per_s(vcpu=2, memory_gb=4),
        cache_usd_per_s=TABLE.cache_usd_per_s("cache.t4g.medium", "valkey"),
        scaler_usd_per_s=TABLE.fargate_usd_per_s(vcpu=0.25, memory_gb=0.5),
        memory_mb=1024,
        function_timeout_s=60.0,
        provisioned=provisioned,
    )


PRICING = RoundPricing(basis=basis(), deadline_slack_s=10.0, learner_allowance_s=60.0)
HELD_USD_PER_S = (0.9776 + 0.052 + 0.0123425) / 3600
"""Learner, cache and scaler of `basis`, from the price table by hand."""


def with_budget(spec: JobSpec, budget_usd: float) -> JobSpec:
    return spec.model_copy(update={"stop": spec.stop.model_copy(update={"budget_usd": budget_usd})})


def test_a_round_is_priced_to_its_deadline_and_one_that_launches_nothing_has_none() -> None:
    twice_usd = 2 * (60 * 0.0000166667 + 0.0000002)  # with 1 GB, to the time-out
    waiting_s = 2 * 60 + 10
    assert PRICING.worst_case_usd(1) == pytest.approx(twice_usd + (waiting_s + 60) * HELD_USD_PER_S)
    assert PRICING.worst_case_usd(0) == pytest.approx(60 * HELD_USD_PER_S)


@pytest.mark.parametrize(("longest_s", "allowed_s"), [(0, 60), (30, 60), (31, 62), (100, 200)])
def test_the_next_round_may_take_the_learner_twice_as_long_as_any_before_it(
    longest_s: float, allowed_s: float
) -> None:
    slower = PRICING.after(longest_s)
    assert slower.worst_case_usd(0) == pytest.approx(allowed_s * HELD_USD_PER_S)


def test_only_a_job_that_evaluates_leaves_money_for_its_final_evaluation() -> None:
    blind = SPEC.model_copy(update={"evaluation": EvaluationRule(every_rounds=0, episodes=3)})
    learner_usd = 60 * HELD_USD_PER_S
    assert closing_usd(SPEC, PRICING) == pytest.approx(PRICING.worst_case_usd(3))
    assert closing_usd(blind, PRICING) == pytest.approx(learner_usd)
    assert smallest_budget_usd(blind, PRICING) == pytest.approx(
        PRICING.worst_case_usd(2) + learner_usd
    )


def test_a_quota_below_the_fewest_actors_is_no_lack_of_money() -> None:
    spec = with_budget(SPEC, PRICING.worst_case_usd(1) + closing_usd(SPEC, PRICING) + 1e-9)
    got = affordable_round(spec, PRICING, num_actors=1, num_evaluations=0, committed_usd=0.0)
    assert (got.num_actors, got.note) == (1, "")


def test_the_smallest_budget_buys_exactly_the_smallest_round() -> None:
    least = smallest_budget_usd(SPEC, PRICING)
    got = affordable_round(
        with_budget(SPEC, least), PRICING, num_actors=16, num_evaluations=3, committed_usd=0.0
    )
    assert (got.num_actors, got.num_evaluations) == (2, 0)
    assert "evaluation left out" in got.note
    below = affordable_round(
        with_budget(SPEC, least * 0.999),
        PRICING,
        num_actors=16,
        num_evaluations=3,
        committed_usd=0.0,
    )
    assert (below.num_actors, below.num_evaluations, below.reserve_usd) == (0, 0, 0.0)
    assert below.note.startswith("budget: 2 actors may cost")


def test_a_round_shrinks_before_it_is_given_up() -> None:
    wanted = PRICING.worst_case_usd(7 + 3) + closing_usd(SPEC, PRICING)
    got = affordable_round(
        with_budget(SPEC, wanted + 1e-9),
        PRICING,
        num_actors=16,
        num_evaluations=3,
        committed_usd=0.0,
    )
    assert (got.num_actors, got.num_evaluations) == (7, 3)
    assert "16 actors cut to 7" in got.note
    assert got.reserve_usd == pytest.approx(PRICING.worst_case_usd(10))


@pytest.mark.parametrize("affordable", range(2, 17))
def test_a_round_has_all_the_actors_there_is_money_for(affordable: int) -> None:
    budget_usd = PRICING.worst_case_usd(affordable) + closing_usd(SPEC, PRICING) + 1e-9
    got = affordable_round(
        with_budget(SPEC, budget_usd), PRICING, num_actors=16, num_evaluations=0, committed_usd=0.0
    )
    assert got.num_actors == affordable


def test_plenty_of_money_changes_nothing() -> None:
    got = affordable_round(SPEC, PRICING, num_actors=16, num_evaluations=3, committed_usd=0.0)
    assert (got.num_actors, got.num_evaluations, got.note) == (16, 3, "")


def test_the_final_evaluation_is_launched_whole_or_not_at_all() -> None:
    price = PRICING.worst_case_usd(3)
    spec = with_budget(SPEC, 1.0)
    enough = affordable_closing(spec, PRICING, committed_usd=1.0 - price - 1e-9)
    short = affordable_closing(spec, PRICING, committed_usd=1.0 - price + 1e-6)
    assert (enough.num_evaluations, short.num_evaluations) == (3, 0)
    assert short.note == "budget: final evaluation left out"
    exact = affordable_closing(with_budget(SPEC, price), PRICING, committed_usd=0.0)
    spent = affordable_closing(spec, PRICING, committed_usd=1.0)
    assert (exact.num_evaluations, exact.reserve_usd) == (3, price)
    assert (spent.num_actors, spent.num_evaluations, spent.reserve_usd) == (0, 0, 0.0)
