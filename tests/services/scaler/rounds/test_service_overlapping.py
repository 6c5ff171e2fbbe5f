"""Rounds that overlap, over HTTP: planned once, launched once, each second billed once."""

from collections import Counter

import pytest

from shared.cache.client import TrajectoryCache
from shared.contracts.rounds import EvaluationResult, RoundPlan
from tests.services.scaler.lambda_endpoint import (
    LambdaEndpoint,
    Reply,
    report,
)
from tests.services.scaler.running import Scaler, StartScaler, curvature, result, wrong_fields

ASYNC = {
    "algorithm": "impala",
    "rounds_in_flight": 2,
    "actors": {"min": 2, "max": 4},
    "evaluation": {"every_rounds": 2, "episodes": 3},
}


def timeless(plan: RoundPlan) -> RoundPlan:
    return plan.model_copy(update={"age_s": 0.0})


def test_a_job_trains_from_submit_to_bill(scaler: Scaler) -> None:
    lease = scaler.begin(**ASYNC, stop={"max_rounds": 3})
    plans = [scaler.round(lease, 0), scaler.round(lease, 1)]
    plans.append(scaler.played(lease, 2, curvature=curvature(1.0, -1.0), previous=result(0)))
    assert [p.num_actors for p in plans] == [4, 4, 4]
    assert [p.num_evaluations for p in plans] == [3, 0, 3]
    assert (plans[2].ratio, plans[2].stop) == (1.0, None)
    assert len(scaler.lambdas.rollouts()) == 12

    waiting = scaler.round(lease, 3, previous=result(1))
    assert (waiting.stop, waiting.num_actors, waiting.num_evaluations) == ("max_rounds", 0, 0)
    last = scaler.round(lease, 4, previous=result(2))
    assert (last.stop, last.num_actors, last.num_evaluations) == ("max_rounds", 0, 3)
    scaler.landed(lease.job.job_id)
    assert len(scaler.lambdas.rollouts("evaluate")) == 9
    assert scaler.round_response(lease, 5).status_code == 422

    final = EvaluationResult(policy_version=7, returns=(5.0,), lengths=(1,))
    done = scaler.finish(lease, final_evaluation=final)
    assert (done.progress.rounds, done.progress.env_steps) == (3, 300)
    cost = scaler.cost(lease.job.job_id)
    assert done.spent_usd == cost.settled_usd > 0
    assert cost.reserved_usd == 0
    assert any("2 rounds are open at a time" in text for text in cost.assumptions)
    page = scaler.rounds(lease.job.job_id)
    assert [r.result is not None for r in page.rounds] == [True, True, True]
    assert [r.result is not None for r in page.endings] == [False, False]
    every = (*page.rounds, *page.endings)
    assert sum(r.cost_usd for r in every) == pytest.approx(done.spent_usd)


def test_open_rounds_stay_reserved_until_they_are_over_and_landed(scaler: Scaler) -> None:
    gate = scaler.lambdas.hold_rollouts()
    lease = scaler.begin(**{**ASYNC, "evaluation": {"every_rounds": 0}})
    reserved = []
    for index in range(3):
        scaler.round(lease, index, previous=result(0) if index == 2 else None)
        reserved.append(scaler.cost(lease.job.job_id).reserved_usd)
    one = reserved[0]
    assert reserved == pytest.approx([one, 2 * one, 3 * one])
    gate.set()
    scaler.landed(lease.job.job_id)
    # Round 0 is over and landed; rounds 1 and 2 have landed but are still learned from.
    assert scaler.cost(lease.job.job_id).reserved_usd == pytest.approx(2 * one)


def test_what_an_open_round_lacks_is_launched_again_and_billed_with_it(scaler: Scaler) -> None:
    lease = scaler.begin(**ASYNC, stop={"max_rounds": 2})
    first, _ = scaler.round(lease, 0), scaler.played(lease, 1)
    again = scaler.played(lease, 0, attempt=1, missing=(1, 3), missing_evaluations=(2,))
    assert (again.num_actors, again.num_evaluations, again.stop) == (4, 3, None)
    assert scaler.round(lease, 0, attempt=1, missing=(1, 3), missing_evaluations=(2,)).age_s > 0
    launched = Counter(number for _, number, _, _ in scaler.lambdas.rollouts())
    assert launched == {0: 4 + 2, 1: 4}
    assert len(scaler.lambdas.rollouts("evaluate")) == first.num_evaluations + 1
    for index in (2, 3):
        scaler.played(lease, index, previous=result(index - 2))
    done = scaler.finish(lease)
    assert (done.progress.rounds, done.progress.env_steps) == (2, 200)
    cost = scaler.cost(lease.job.job_id)
    assert cost.reserved_usd == 0
    page = scaler.rounds(lease.job.job_id)
    assert [each.plan.attempt for each in page.rounds] == [1, 0]
    every = (*page.rounds, *page.endings)
    assert sum(each.cost_usd for each in every) == pytest.approx(done.spent_usd)
    assert done.spent_usd == cost.settled_usd > 0


def test_every_open_round_can_be_asked_for_again(start_scaler: StartScaler) -> None:
    with start_scaler() as scaler:
        lease = scaler.begin(**{**ASYNC, "rounds_in_flight": 3})
        plans = [scaler.round(lease, index) for index in range(3)]
        assert [timeless(scaler.round(lease, index)) for index in range(3)] == plans
        scaler.landed(lease.job.job_id)
    with start_scaler() as scaler:
        assert [timeless(scaler.round(lease, index)) for index in range(3)] == plans
        plans.append(scaler.round(lease, 3, previous=result(0)))
        again = [scaler.round(lease, index) for index in (1, 2, 3)]
        assert [timeless(plan) for plan in again] == plans[1:]
        scaler.landed(lease.job.job_id)
    launched = [(number, actor) for _, number, _, actor in scaler.lambdas.rollouts()]
    assert sorted(launched) == [(number, actor) for number in range(4) for actor in range(4)]


@pytest.mark.parametrize(
    ("index", "changes", "field"),
    [
        (0, {}, "round"),  # over
        (4, {}, "round"),  # skips one
        (3, {"previous": result(2)}, "previous.round"),
        (2, {"attempt": 2}, "attempt"),
        (2, {"policy_version": 9}, "policy_version"),
    ],
)
def test_what_is_out_of_order_is_refused_and_changes_nothing(
    scaler: Scaler, index: int, changes: dict[str, object], field: str
) -> None:
    lease = scaler.begin(**ASYNC)
    for number in range(3):
        scaler.round(lease, number, previous=result(0) if number == 2 else None)
    scaler.landed(lease.job.job_id)
    before = scaler.rounds(lease.job.job_id)
    refused = scaler.round_response(lease, index, **changes)
    assert wrong_fields(refused) == [field]
    assert scaler.rounds(lease.job.job_id) == before


def test_a_job_that_once_had_to_end_ends_whatever_is_known_later(scaler: Scaler) -> None:
    lease = scaler.begin(**ASYNC, stop={"target_return": 100.0})
    scaler.round(lease, 0)
    scaler.round(lease, 1)
    good = EvaluationResult(policy_version=0, returns=(110.0,), lengths=(1,))
    bad = EvaluationResult(policy_version=1, returns=(10.0,), lengths=(1,))
    waiting = scaler.round(lease, 2, previous=result(0, evaluation=good))
    last = scaler.round(lease, 3, previous=result(1, evaluation=bad))
    assert [plan.stop for plan in (waiting, last)] == ["target_return"] * 2
    assert [plan.num_evaluations for plan in (waiting, last)] == [0, 3]
    assert last.reason == waiting.reason == "evaluation return 110 reached the target 100"


def test_a_job_resumed_in_the_middle_makes_its_open_rounds_again(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    job = scaler.submit(**ASYNC, stop={"max_rounds": 9})
    lease = scaler.lease()
    for index in range(4):
        scaler.played(lease, index, previous=result(index - 2) if index > 1 else None)
    scaler.finish(lease, status="failed", stop_reason="error", error="broken")
    paid = scaler.cost(job.job_id)
    assert paid.reserved_usd == 0
    for number in (2, 3):
        cache.store_result(job.job_id, number, mode="sample", actor_index=0, payload=b"old")
    resumed = scaler.resumed(job.job_id)
    again = [scaler.round(resumed, 2), scaler.round(resumed, 3)]
    scaler.landed(job.job_id)
    assert [plan.age_s for plan in again] == [0.0, 0.0]
    assert [cache.answered(job.job_id, number) for number in (2, 3)] == [[], []]
    assert scaler.rounds(job.job_id).rounds[-1].plan.round == 3
    assert (scaler.job(job.job_id).progress.rounds) == 2
    scaler.round(resumed, 4, previous=result(2))
    assert scaler.job(job.job_id).progress.rounds == 3
    assert scaler.cost(job.job_id).settled_usd > paid.settled_usd


def test_a_learner_that_takes_over_gets_the_plans_there_are(start_scaler: StartScaler) -> None:
    with start_scaler(lease_ttl_s=0.2, heartbeat_every_s=0.05) as scaler:
        lease = scaler.begin(**ASYNC)
        plans = [scaler.round(lease, index) for index in range(2)]
        plans.append(scaler.round(lease, 2, previous=result(0)))
        successor = scaler.lease(wait_s=10.0, learner_id="another")
        # Its newest checkpoint may know of round 0's end, or may not.
        for first in (1, 2):
            assert timeless(scaler.round(successor, first)) == plans[first]
        assert scaler.round(successor, 3, previous=result(1)).age_s == 0.0
        scaler.landed(lease.job.job_id)
    launched = Counter(number for _, number, _, _ in scaler.lambdas.rollouts())
    assert launched == dict.fromkeys(range(4), 4)


def test_open_rounds_count_against_the_jobs_share_of_the_concurrency(scaler: Scaler) -> None:
    scaler.lambdas.concurrency_limit = 6
    gate = scaler.lambdas.hold_rollouts()
    lease = scaler.begin(**{**ASYNC, "evaluation": {"every_rounds": 0}})
    plans = [scaler.round(lease, 0), scaler.round(lease, 1)]
    gate.set()
    scaler.landed(lease.job.job_id)
    assert [(plan.requested, plan.num_actors) for plan in plans] == [(4, 3), (4, 3)]
    assert "cut to 3 of 6 shared by 1 jobs, 3 in flight, 2 rounds open" in plans[1].reason


def test_a_provisioned_environment_serves_one_open_round_at_a_time(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    gate = lambdas.hold_rollouts()
    with start_scaler(provisioned_concurrency=6) as scaler:
        spec = {**ASYNC, "actors": {"min": 2, "max": 6}, "evaluation": {"every_rounds": 0}}
        job = scaler.submit(**spec, scaling={"policy": "fixed", "num_actors": 4})
        lease = scaler.lease()
        with lambdas.changed:
            assert lambdas.changed.wait_for(lambda: lambdas.provisioned == 6, 10)
            looks = lambdas.provisioned_reads
        for look in (1, 2):  # once the second has begun, the first has told
            scaler.reconcile()
            lambdas.wait_seen(provisioned_reads=looks + look)
        assert scaler.parts.capacity.ready == 6
        for index in range(2):
            scaler.round(lease, index)
        gate.set()
        scaler.landed(job.job_id)
        record = scaler.record(job.job_id)
    assert [(a.warm, a.cold) for a in record.open_attempts] == [(4, 0), (2, 2)]


def test_a_limit_below_the_fewest_actors_of_all_open_rounds_is_refused(scaler: Scaler) -> None:
    scaler.lambdas.concurrency_limit = 5
    spec = {**ASYNC, "rounds_in_flight": 3}
    (error,) = scaler.refused(spec).errors
    assert error.field == "rounds_in_flight"
    assert "3 open rounds of at least 2 actors exceed the limit of 5" in error.message
    assert scaler.http.post("/v1/jobs", json=ASYNC).is_success


@pytest.mark.parametrize(("limit", "max_rounds"), [(6, 9), (5, 2)])
def test_the_fewest_actors_of_the_rounds_there_will_be_may_fill_the_limit(
    scaler: Scaler, limit: int, max_rounds: int
) -> None:
    scaler.lambdas.concurrency_limit = limit
    spec = {**ASYNC, "rounds_in_flight": 3, "stop": {"max_rounds": max_rounds}}
    assert scaler.submit(**spec).status == "queued"


def test_the_budget_counts_every_open_round(scaler: Scaler) -> None:
    scaler.lambdas.rollouts_behave(lambda t, n: Reply(body=report(t).body, billed_ms=20000))
    budget = 0.6
    lease = scaler.begin(
        algorithm="impala",
        rounds_in_flight=3,
        actors={"min": 2, "max": 64},
        evaluation={"every_rounds": 0},
        stop={"budget_usd": budget, "max_rounds": 1000},
    )
    plans: list[RoundPlan] = []
    while sum(plan.stop is not None for plan in plans) < 3:
        index = len(plans)
        previous = result(index - 3) if index > 2 else None
        plans.append(scaler.round(lease, index, previous=previous))
        cost = scaler.cost(lease.job.job_id)
        assert cost.settled_usd + cost.reserved_usd <= budget
        scaler.landed(lease.job.job_id)
    assert [plan.stop for plan in plans[-3:]] == ["budget"] * 3
    assert len(plans) > 5
    scaler.finish(lease, status="stopped", stop_reason="budget")
    cost = scaler.cost(lease.job.job_id)
    assert cost.reserved_usd == 0
    assert 0.4 * budget < cost.settled_usd <= budget


def test_deleting_a_job_frees_what_its_open_rounds_left(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    lease = scaler.begin(**ASYNC)
    scaler.round(lease, 0, policy_version=0)
    scaler.round(lease, 1, policy_version=0)
    scaler.played(lease, 2, policy_version=40, previous=result(0))
    for number, version in ((1, 0), (2, 40)):
        cache.publish_policy(lease.job.job_id, version, b"weights")
        cache.store_result(lease.job.job_id, number, mode="sample", actor_index=0, payload=b"x")
    scaler.finish(lease, status="failed", stop_reason="error", error="broken")
    scaler.http.delete(f"/v1/jobs/{lease.job.job_id}")
    assert [cache.fetch_policy(lease.job.job_id, version) for version in (0, 40)] == [None, None]
    assert [cache.answered(lease.job.job_id, number) for number in (1, 2)] == [[], []]


def test_the_cache_must_hold_all_open_rounds(start_scaler: StartScaler) -> None:
    spec = {**ASYNC, "actors": {"min": 2, "max": 64}}
    with start_scaler(cache_memory_mb=2) as scaler:
        scaler.submit(**{**spec, "rounds_in_flight": 1})
        (error,) = scaler.refused(spec).errors
    assert error.field == "steps_per_actor"
    assert "2 open rounds of 64 actors with 256 steps may take" in error.message
