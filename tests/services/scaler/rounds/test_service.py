"""Rounds over HTTP: decided once, launched once, answered before anything is launched."""

import concurrent.futures
import statistics
import threading
import time

import pytest

from shared.cache.client import TrajectoryCache
from shared.contracts.rounds import EvaluationResult
from shared.trajectory.seeds import actor_seed
from tests.services.scaler.lambda_endpoint import (
    Reply,
    healthy,
    report,
)
from tests.services.scaler.running import Scaler, StartScaler, curvature, result

SMALL = {"actors": {"min": 2, "max": 4}, "evaluation": {"every_rounds": 2, "episodes": 3}}


def samples(job_id: str, round_index: int, attempt: int, actors: int) -> list[object]:
    return [(job_id, round_index, attempt, actor) for actor in range(actors)]


def test_a_job_trains_from_submit_to_bill(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL, stop={"max_rounds": 2})
    first = scaler.round(lease, 0, curvature=curvature(1.0, -1.0))
    assert (first.num_actors, first.num_evaluations, first.boosting_score) == (4, 3, 1.0)
    assert (first.ratio, first.quorum, first.stop) == (1.0, 2, None)
    scaler.landed(lease.job.job_id)
    assert sorted(scaler.lambdas.rollouts()) == samples(lease.job.job_id, 0, 0, 4)
    assert len(scaler.lambdas.rollouts("evaluate")) == 3

    second = scaler.round(lease, 1, curvature=curvature(2.0, -1.0), previous=result(0))
    assert (second.num_actors, second.num_evaluations, second.boosting_score) == (2, 0, 0.0)
    assert {line.round for line in second.settled} == {0}
    scaler.landed(lease.job.job_id)

    evaluation = EvaluationResult(policy_version=1, returns=(10.0, 20.0), lengths=(1, 1))
    last = scaler.round(lease, 2, previous=result(1, evaluation=evaluation))
    assert (last.stop, last.num_actors, last.num_evaluations) == ("max_rounds", 0, 3)
    final = EvaluationResult(policy_version=2, returns=(5.0,), lengths=(1,))
    done = scaler.finish(lease, final_evaluation=final)
    assert (done.status, done.stop_reason) == ("succeeded", "max_rounds")
    assert done.progress.rounds == 2
    assert done.progress.env_steps == 200
    assert (done.progress.last_return, done.progress.best_return) == (5.0, 15.0)
    assert done.spent_usd == scaler.cost(lease.job.job_id).settled_usd > 0
    page = scaler.rounds(lease.job.job_id)
    assert [r.plan.round for r in page.rounds] == [0, 1]  # as many as it has
    assert [(r.plan.round, r.plan.stop) for r in page.endings] == [(2, "max_rounds")]
    assert all(r.result is not None for r in page.rounds)
    every = (*page.rounds, *page.endings)
    assert sum(r.cost_usd for r in every) == pytest.approx(done.spent_usd)


def test_actors_get_everything_they_need_and_no_two_the_same_seed(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL, seed=5, steps_per_actor=64, envs_per_actor=2)
    scaler.played(lease, 0)
    events = [e for e in scaler.lambdas.events if e["mode"] != "describe"]
    assert len({e["seed"] for e in events}) == len(events) == 7
    sample = next(e for e in events if e["mode"] == "sample" and e["actor_index"] == 2)
    assert sample == {
        "mode": "sample",
        "job_id": lease.job.job_id,
        "round": 0,
        "attempt": 0,
        "actor_index": 2,
        "policy_version": 0,
        "lease_hash": (lease_hash := sample["lease_hash"]),
        "env": {"env_id": "Hopper-v5", "env_kwargs": {}, "wrappers": [], "env_variables": {}},
        "steps": 64,
        "num_envs": 2,
        "continues": False,
        "horizon": None,
        "replay_steps": 0,
        "search": None,
        "rebuild": False,
        "discount": 0.99,
        "seed": actor_seed(5, mode="sample", round_index=0, actor_index=2),
    }
    assert {event["lease_hash"] for event in events} == {lease_hash}
    assert lease.lease_id not in str(events)  # whoever knows it can plan rounds


def test_the_answer_comes_before_the_actors_and_again_without_them(scaler: Scaler) -> None:
    gate = scaler.lambdas.hold_rollouts()
    lease = scaler.begin(**SMALL)
    plan = scaler.round(lease, 0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        again = [f.result() for f in [pool.submit(scaler.round, lease, 0) for _ in range(8)]]
    assert all(p.model_copy(update={"age_s": 0.0}) == plan for p in again)
    assert all(p.age_s > 0 for p in again)
    gate.set()
    scaler.landed(lease.job.job_id)
    assert len(scaler.lambdas.rollouts()) == 4


def test_the_same_round_asked_for_many_times_at_once_is_launched_once(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    start = threading.Barrier(6)

    def ask() -> str:
        start.wait(10)
        return scaler.round(lease, 0).model_copy(update={"age_s": 0.0}).model_dump_json()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        plans = {f.result() for f in [pool.submit(ask) for _ in range(6)]}
    assert len(plans) == 1
    scaler.landed(lease.job.job_id)
    assert sorted(scaler.lambdas.rollouts()) == samples(lease.job.job_id, 0, 0, 4)


def test_a_malformed_request_names_its_field(scaler: Scaler) -> None:
    lease = scaler.begin()
    path = f"/v1/jobs/{lease.job.job_id}/rounds"
    body = {"lease_id": lease.lease_id, "policy_version": 0}
    wrong: dict[str, object] = {**body, "curvature": {"lambda_max": "NaN"}}
    response = scaler.http.post(f"{path}/0", json=wrong)
    assert response.status_code == 422
    assert "curvature.lambda_max" in [e["field"] for e in response.json()["errors"]]
    assert scaler.http.post(f"{path}/-1", json=body).status_code == 404
    assert scaler.http.post(f"{path}/x", json=body).status_code == 404


@pytest.mark.parametrize("algorithm", ["ppo", "impact"])
def test_a_round_beyond_all_numbers_of_the_store_is_at_no_address(
    scaler: Scaler, algorithm: str
) -> None:
    lease = scaler.begin(algorithm=algorithm)
    assert scaler.round_response(lease, 2**31 - 1).status_code == 422
    for index in (2**31, 2**63, 10**19):
        assert scaler.round_response(lease, index).status_code == 404


@pytest.mark.parametrize("fewest", [2, 6])
def test_jobs_share_the_accounts_concurrency_and_may_get_less_than_their_fewest_actors(
    scaler: Scaler, fewest: int
) -> None:
    scaler.lambdas.concurrency_limit = 8
    gate = scaler.lambdas.hold_rollouts()
    spec = {"actors": {"min": fewest, "max": 8}, "evaluation": {"every_rounds": 0}}
    leases = [scaler.begin(**spec), scaler.begin(**spec)]
    plans = [scaler.round(lease, 0) for lease in leases]
    gate.set()
    for lease in leases:
        scaler.landed(lease.job.job_id)
    assert [(p.requested, p.num_actors, p.stop) for p in plans] == [(8, 8, None), (8, 4, None)]
    assert "concurrency: 8 actors cut to 4 of 8 shared by 2 jobs, 8 in flight" in plans[1].reason


def test_the_budget_ends_a_job_and_is_never_exceeded(scaler: Scaler) -> None:
    scaler.lambdas.rollouts_behave(lambda t, n: Reply(body=report(t).body, billed_ms=60000))
    budget = 0.2
    lease = scaler.begin(
        actors={"min": 2, "max": 64},
        evaluation={"every_rounds": 0},
        stop={"budget_usd": budget, "max_rounds": 1000},
    )
    plans = []
    for index in range(1000):
        previous = result(index - 1) if index else None
        plans.append(scaler.played(lease, index, previous=previous))
        if plans[-1].stop is not None:
            break
    assert plans[-1].stop == "budget"
    assert len(plans) > 2
    assert any("budget: 64 actors cut to" in plan.reason for plan in plans)
    scaler.finish(lease, status="stopped", stop_reason="budget")
    cost = scaler.cost(lease.job.job_id)
    assert cost.reserved_usd == 0
    assert 0.5 * budget < cost.settled_usd <= budget


def test_a_restarted_scaler_repeats_the_plan_and_bills_the_unknown_at_its_worst(
    start_scaler: StartScaler,
) -> None:
    gate = threading.Event()
    with start_scaler(shutdown_wait_s=0.01) as scaler:
        scaler.lambdas.rollouts_behave(lambda t, n: Reply(body=report(t).body, gate=gate))
        lease = scaler.begin(**SMALL)
        plan = scaler.round(lease, 0)
        reserved = scaler.cost(lease.job.job_id).reserved_usd
        scaler.lambdas.wait_events("sample", 4)
        scaler.lambdas.wait_events("evaluate", 3)
    with start_scaler() as scaler:
        assert scaler.round(lease, 0).model_copy(update={"age_s": 0.0}) == plan
        assert scaler.cost(lease.job.job_id).reserved_usd == reserved
        launches = scaler.rounds(lease.job.job_id).rounds[0].launches
        assert launches is not None
        assert launches.unknown == 7
        again = scaler.round(lease, 0, attempt=1)
        scaler.lambdas.behave = healthy
        gate.set()
        scaler.landed(lease.job.job_id)
        assert again.num_actors == 4
    assert sorted(scaler.lambdas.rollouts()) == [
        *samples(lease.job.job_id, 0, 0, 4),
        *samples(lease.job.job_id, 0, 1, 4),
    ]


def test_a_learner_that_lost_checkpoints_makes_their_rounds_again(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    job = scaler.submit(**SMALL, stop={"max_rounds": 9})
    lease = scaler.lease()
    for index in range(4):
        better = EvaluationResult(policy_version=index, returns=(10.0 * index,), lengths=(1,))
        previous = result(index - 1, evaluation=better) if index else None
        measured = curvature(1.0 + index, -1.0)
        scaler.played(lease, index, curvature=measured, previous=previous)
    first_time = scaler.rounds(job.job_id).rounds[1].plan
    paid = scaler.cost(job.job_id).settled_usd
    scaler.finish(lease, status="failed", stop_reason="error", error="damaged")
    cache.store_result(job.job_id, 1, mode="sample", actor_index=0, payload=b"old")
    cache.close_round(job.job_id, 1)
    resumed = scaler.resumed(job.job_id)
    request = {"curvature": curvature(2.0, -1.0), "previous": result(0)}
    plan = scaler.played(resumed, 1, **request)
    assert scaler.round(resumed, 1, **request).model_copy(update={"age_s": 0.0}) == plan
    assert (plan.num_actors, plan.ratio) == (first_time.num_actors, first_time.ratio)
    assert cache.answered(job.job_id, 1) == []
    assert [r.plan.round for r in scaler.rounds(job.job_id).rounds] == [0, 1]
    progress = scaler.job(job.job_id).progress
    assert (progress.rounds, progress.env_steps) == (1, 100)
    # Those of policies that are gone count for nothing, a target least of all.
    assert (progress.last_return, progress.best_return) == (10.0, 10.0)
    cost = scaler.cost(job.job_id)
    assert cost.settled_usd > paid
    assert cost.reserved_usd > 0
    assert scaler.round_response(resumed, 0).status_code == 422
    assert scaler.round(resumed, 2, previous=result(1)).stop is None


def test_a_job_that_goes_on_where_it_stopped_keeps_its_final_evaluation(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL, stop={"max_rounds": 9})
    scaler.round(lease, 0)
    evaluated = EvaluationResult(policy_version=0, returns=(3.0,), lengths=(1,))
    job_id = scaler.round(lease, 1, previous=result(0, evaluation=evaluated)).job_id
    scaler.landed(job_id)
    final = EvaluationResult(policy_version=1, returns=(30.0,), lengths=(1,))
    scaler.finish(lease, status="stopped", stop_reason="user", final_evaluation=final)
    assert scaler.round(scaler.resumed(job_id), 1, previous=result(0)).stop is None
    progress = scaler.job(job_id).progress
    assert (progress.last_return, progress.best_return) == (30.0, 30.0)


def test_a_decision_takes_milliseconds(scaler: Scaler) -> None:
    lease = scaler.begin(actors={"min": 2, "max": 2}, evaluation={"every_rounds": 0})
    elapsed = []
    for index in range(20):
        previous = result(index - 1) if index else None
        start = time.perf_counter()
        scaler.round(lease, index, curvature=curvature(1.0 + index, -1.0), previous=previous)
        elapsed.append(time.perf_counter() - start)
        scaler.landed(lease.job.job_id)
    # The bound is 10 ms on a quiet machine; this only catches an accidental wait on the path.
    assert statistics.median(elapsed) < 0.5
