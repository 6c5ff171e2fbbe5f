"""Where a round's actors run: at the least cost, by hand; and what the plan makes of it."""

from dataclasses import replace
from typing import Any

import pytest

from services.scaler.book.attempts import FunctionTimes
from services.scaler.launching.quota import Concurrency
from services.scaler.rounds.decision import RoundContext, decide_round
from services.scaler.rounds.own_cores import Places, places_of, split
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import JobProgress
from shared.contracts.rounds import OwnActors, RoundPlan, RoundRequest
from shared.contracts.scaling_spec import FixedScaling
from tests.services.scaler.money.test_budget import PRICING, SPEC, with_budget
from tests.services.scaler.rounds.test_decision import context, running

DOLLAR_A_SECOND = 3600.0


# Eight actors, two own cores, a dollar a second. Beside each: what 0, 2, 4, 6 and 8 own ones cost.
@pytest.mark.parametrize(
    ("own_s", "function_s", "function_usd", "own"),
    [
        (0.01, 0.1, 0.0, 8),  # 0.1, 0.1, 0.1, 0.1, 0.04: cheap simulators
        (1.0, 1.0, 0.0, 2),  # 1, 1, 2, 3, 4: functions are free, and own cores are no slower
        (1.0, 1.0, 0.4, 2),  # 4.2, 3.4, 3.6, 3.8, 4
        (1.0, 1.0, 0.6, 8),  # 5.8, 4.6, 4.4, 4.2, 4: dear functions
        (1.0, 3.0, 0.1, 6),  # 3.8, 3.6, 3.4, 3.2, 4: functions are waited for anyway
        (5.0, 5.2, 0.001, 2),  # 5.208, 5.206, 10.004, 15.002, 20: a slow simulator
        (6.0, 5.0, 0.001, 0),  # 5.008, 6.006, 12.004, ...: own cores are slow
        (0.0, 0.1, 0.0, 8),  # nothing is measured yet
    ],
)
def test_the_split_with_the_least_cost_is_taken(
    own_s: float, function_s: float, function_usd: float, own: int
) -> None:
    places = Places(
        cores=2,
        own_s=own_s,
        function_s=function_s,
        function_usd=function_usd,
        held_usd_per_s=0.0,
        usd_per_hour=DOLLAR_A_SECOND,
    )
    assert split(8, places).own == own
    # The learner's own price counts as the value of time does.
    priced = replace(places, usd_per_hour=0.0, held_usd_per_s=1.0)
    assert split(8, priced).own == own


def test_money_alone_takes_own_cores_and_a_deadline_or_shared_cores_bound_them() -> None:
    free = Places(
        cores=2,
        own_s=1.0,
        function_s=0.1,
        function_usd=1e-6,
        held_usd_per_s=0.0,
        usd_per_hour=0.0,
    )
    assert split(8, free).own == 8
    assert split(3, replace(free, cores=1, usd_per_hour=DOLLAR_A_SECOND)).own == 0
    # Two and a half seconds are two turns of both cores.
    assert split(8, replace(free, longest_s=2.5)).own == 4
    # Functions on the same cores are no help, however fast they seem.
    shared = replace(free, usd_per_hour=DOLLAR_A_SECOND, shared=True)
    assert (split(8, shared).own, split(8, replace(shared, longest_s=2.5)).own) == (8, 0)


def test_places_follow_from_what_the_job_measured_and_from_its_prices() -> None:
    record = running(_own(2))
    basis = PRICING.basis
    assert places_of(record, None, basis, num_actors=4) is None
    assert places_of(running(_own(0)), OwnActors(num=2), basis, num_actors=4) is None
    measured = record.model_copy(
        update={"function_times": FunctionTimes(step_s=0.002, call_s=0.05)}
    )
    own = OwnActors(num=2, step_s=0.001, call_s=0.01)
    places = places_of(measured, own, basis, num_actors=4)
    steps = SPEC.steps_per_actor
    assert places is not None
    assert places.own_s == pytest.approx(0.01 + steps * 0.001)
    assert places.function_s == pytest.approx(0.05 + steps * 0.002)
    gb_s = places.function_s * basis.memory_mb / 1024
    usd = gb_s * basis.prices.lambda_usd_per_gb_s + basis.prices.lambda_usd_per_request
    assert places.function_usd == pytest.approx(usd, rel=0.02)


def test_a_search_is_placed_by_the_steps_that_its_episodes_had() -> None:
    rule = {"algorithm": "ars", "actors": _own(2).actors, "steps_per_actor": 4000}
    spec = JobSpec.model_validate(rule)
    record, own = running(spec), OwnActors(num=2, step_s=0.001, call_s=0.0)
    for progress, steps in (({}, 4000), ({"rounds": 5, "env_steps": 2000}, 100)):
        job = record.job.model_copy(update={"progress": JobProgress.model_validate(progress)})
        made = record.model_copy(update={"job": job})
        places = places_of(made, own, PRICING.basis, num_actors=4)
        assert places is not None
        assert places.own_s == pytest.approx(steps * 0.001)
        assert split(8, places).most_own == 2  # its actors share a queue
    unknown = places_of(record, OwnActors(num=2), PRICING.basis, num_actors=8)
    assert unknown is not None
    assert split(8, unknown).most_own == 2


def _own(number: int) -> JobSpec:
    actors = SPEC.actors.model_copy(update={"own": number})
    return with_budget(SPEC, 5.0).model_copy(update={"actors": actors})


def _planned(number: int, *, step_s: float, **changes: Any) -> RoundPlan:
    asked = RoundRequest(
        lease_id="lease",
        policy_version=1,
        own=OwnActors(num=number, step_s=step_s) if number else None,
    )
    scaling = FixedScaling(policy="fixed", num_actors=8)
    known: RoundContext = context(
        record=running(_own(number)), request=asked, scaling=scaling, **changes
    )
    return decide_round(known).plan


def test_a_plan_has_as_many_actors_wherever_they_run_and_reserves_nothing_for_own_ones() -> None:
    functions, own = _planned(0, step_s=0.0), _planned(2, step_s=1e-5)
    assert (functions.num_actors, functions.own) == (8, 0)
    assert (own.num_actors, own.own) == (8, 8)
    assert own.own_evaluations == own.num_evaluations == functions.num_evaluations
    assert own.deadline_s == functions.deadline_s
    assert "own cores: 8 of 8" in own.reason
    mixed = _planned(2, step_s=0.05)
    assert 0 < mixed.own < mixed.num_actors == 8
    assert mixed.own_evaluations == 0


def test_concurrency_and_budget_bound_functions_and_own_cores_take_the_others() -> None:
    few = Concurrency(limit=2, running_jobs=1, others_in_flight=0)
    cut = _planned(2, step_s=0.05, concurrency=few)
    assert (cut.num_actors, cut.own) == (8, 6)
    assert "concurrency" in cut.reason
    committed = 5.0 - PRICING.worst_case_usd(0, own=8) - 1e-3
    closing = PRICING.worst_case_usd(SPEC.evaluation.episodes)
    poor = _planned(2, step_s=0.05, committed_usd=committed - closing)
    assert (poor.num_actors, poor.own, poor.stop) == (8, 8, None)


def test_a_learner_without_own_actors_has_all_that_is_missing_launched_as_functions() -> None:
    plan = _planned(2, step_s=1e-5)
    for own, left in ((OwnActors(num=2), 8), (None, 0)):
        asked = RoundRequest(lease_id="lease", policy_version=1, attempt=1, missing=(0, 1), own=own)
        again = decide_round(context(record=running(_own(2)), request=asked, again=plan))
        assert again.plan.own == left
        functions = 0 if left else 2
        worst_usd = PRICING.worst_case_usd(functions, own=2 - functions)
        assert again.reserve_usd == pytest.approx(worst_usd)


def test_the_final_evaluation_runs_where_the_rounds_do() -> None:
    for own, here in ((OwnActors(num=2, step_s=1e-5), True), (None, False)):
        asked = RoundRequest(lease_id="lease", policy_version=1, own=own)
        record = running(_own(2), status="stopping")
        plan = decide_round(context(record=record, request=asked)).plan
        assert (plan.stop, plan.num_evaluations > 0) == ("user", True)
        assert plan.own_evaluations == (plan.num_evaluations if here else 0)
