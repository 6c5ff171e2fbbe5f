"""Rounds and warm environments that have to fit one budget: which gives way to which."""

from dataclasses import replace

import pytest

from services.scaler.book.records import JobRecord
from services.scaler.money.account import warm_at_most
from services.scaler.money.budget import RoundPricing, closing_usd
from services.scaler.rounds.decision import decide_with_warm
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundPlan
from shared.money.warmth import WarmUse
from tests.services.scaler.money.test_budget import basis
from tests.services.scaler.rounds.test_decision import context, running

DEPLOYED = basis(provisioned=64)
NOW = 5000.0
AMPLE_USD = 100.0


def priced(num_warm: int) -> RoundPricing:
    return RoundPricing(
        basis=warm_at_most(DEPLOYED, num_warm), deadline_slack_s=10.0, learner_allowance_s=60.0
    )


def room_usd(num_actors: int, *, warm: int) -> float:
    """A budget for a round of that many actors and the end of the job, and nothing else."""
    pricing = priced(warm)
    return pricing.worst_case_usd(num_actors) + closing_usd(spec(2, 1.0), pricing) + 1e-9


def spec(num_actors: int, budget_usd: float, **changes: object) -> JobSpec:
    fields = {
        "actors": {"min": 2, "max": 64},
        "scaling": {"policy": "fixed", "num_actors": num_actors},
        "evaluation": {"every_rounds": 0},
        "stop": {"budget_usd": budget_usd, "max_rounds": 100},
        **changes,
    }
    return JobSpec.model_validate(fields)


def planned(
    asked: int,
    budget_usd: float,
    *,
    warm: int | None,
    since: float = NOW - 1000,
    **changes: object,
) -> tuple[JobRecord, RoundPlan]:
    """Round 7 of a job, and its record from then on."""
    wanted = spec(asked, budget_usd, **changes)
    record = running(wanted).model_copy(update={"warm": warm, "warm_since": since})
    deployed = replace(priced(64), basis=DEPLOYED)
    shown = context(7, record=record, scaling=wanted.scaling, pricing=deployed)
    kept, decision = decide_with_warm(shown, at=NOW)
    return kept, decision.plan


def chosen(
    asked: int, budget_usd: float, *, warm: int | None, since: float = NOW - 1000
) -> tuple[int | None, int, str | None]:
    """How many are kept warm, how many actors are launched, and whether the job ends."""
    record, plan = planned(asked, budget_usd, warm=warm, since=since)
    return record.warm, plan.num_actors, plan.stop


@pytest.mark.parametrize(
    ("asked", "warm", "kept"), [(64, 2, 64), (64, 64, 64), (5, 64, 5), (5, None, 5)]
)
def test_with_money_enough_what_may_be_needed_is_warm(
    asked: int, warm: int | None, kept: int
) -> None:
    assert chosen(asked, AMPLE_USD, warm=warm) == (kept, asked, None)


def test_more_are_not_kept_warm_at_the_expense_of_actors() -> None:
    budget_usd = room_usd(10, warm=64)
    kept, num_actors, stop = chosen(64, budget_usd, warm=2)
    assert (kept, stop) == (2, None)
    assert num_actors > 10
    assert chosen(10, budget_usd, warm=2) == (10, 10, None)


def test_more_are_not_kept_warm_where_that_would_end_the_job() -> None:
    assert chosen(64, room_usd(3, warm=2), warm=2) == (2, 3, None)


@pytest.mark.parametrize("warm", [64, None])
def test_fewer_are_kept_warm_before_their_time_where_that_lets_the_job_go_on(
    warm: int | None,
) -> None:
    budget_usd = room_usd(2, warm=2)
    assert chosen(64, budget_usd, warm=warm, since=NOW - 1) == (2, 2, None)
    assert chosen(2, budget_usd, warm=64, since=NOW - 1) == (2, 2, None)
    assert chosen(5, room_usd(2, warm=5), warm=64, since=NOW - 1) == (5, 2, None)
    assert chosen(64, budget_usd - 1e-6, warm=warm, since=NOW - 1) == (64, 0, "budget")


def test_actors_are_cut_before_warm_environments_are() -> None:
    assert chosen(64, room_usd(7, warm=64), warm=64) == (64, 7, None)


def test_more_are_not_kept_warm_at_the_expense_of_an_evaluation() -> None:
    evaluated = {"every_rounds": 7, "episodes": 5}
    with_both = priced(7).worst_case_usd(2 + 5) + priced(7).worst_case_usd(5) + 1e-9
    found = planned(2, with_both, warm=2, evaluation=evaluated)
    assert (found[0].warm, found[1].num_actors, found[1].num_evaluations) == (7, 2, 5)
    found = planned(2, with_both - 1e-6, warm=2, evaluation=evaluated)
    assert (found[0].warm, found[1].num_actors, found[1].num_evaluations) == (2, 2, 5)


def test_a_job_that_can_afford_no_round_may_afford_its_final_evaluation_with_fewer_warm() -> None:
    evaluated = {"every_rounds": 7, "episodes": 5}
    closing_only = priced(2).worst_case_usd(5) + 1e-9
    record, plan = planned(2, closing_only, warm=64, evaluation=evaluated)
    assert (plan.stop, plan.num_evaluations, record.warm) == ("budget", 5, 2)
    closing_only = priced(64).worst_case_usd(5) + 1e-9
    record, plan = planned(2, closing_only, warm=64, since=NOW - 1, evaluation=evaluated)
    assert (plan.stop, plan.num_evaluations, record.warm) == ("budget", 5, 64)


def test_a_job_that_ends_for_another_reason_keeps_what_it_has() -> None:
    for budget_usd in (AMPLE_USD, 0.001):
        stop = {"budget_usd": budget_usd, "max_rounds": 7}
        record, plan = planned(64, budget_usd, warm=20, stop=stop)
        assert (record.warm, plan.num_actors, plan.stop) == (20, 0, "max_rounds")


@pytest.mark.parametrize(
    ("busy_share", "warm", "since", "kept"),
    [
        (0.5, 0, NOW - 1000, 0),
        (0.7, 0, NOW - 1000, 20),
        (0.7, 0, NOW - 299, 0),  # not before five minutes have been measured
        (0.5, 20, NOW - 1000, 0),
        (0.5, 20, NOW - 299, 20),  # they are paid for
    ],
)
def test_auto_provisions_what_works_most_of_its_time(
    busy_share: float, warm: int, since: float, kept: int
) -> None:
    use = WarmUse(held_s=600.0, busy_gb_s=20 * DEPLOYED.memory_gb * 600.0 * busy_share)
    wanted = spec(20, AMPLE_USD, warm="auto")
    record = running(wanted).model_copy(update={"warm": warm, "warm_since": since, "warm_use": use})
    deployed = replace(priced(64), basis=replace(DEPLOYED, ping_every_s=240.0))
    shown = context(7, record=record, scaling=wanted.scaling, pricing=deployed)
    after, decision = decide_with_warm(shown, at=NOW)
    assert (after.warm, decision.plan.num_actors) == (kept, 20)
