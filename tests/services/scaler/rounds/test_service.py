"""Rounds over HTTP: decided once, launched once, answered before anything is launched."""

import concurrent.futures
import statistics
import threading
import time
from dataclasses import replace

import pytest

from shared.cache.client import TrajectoryCache
from shared.contracts.problem import Problem
from shared.contracts.rounds import EvaluationResult
from shared.trajectory.seeds import actor_seed
from tests.services.scaler.lambda_endpoint import (
    Reply,
    Task,
    function_error,
    healthy,
    report,
    throttle,
)
from tests.services.scaler.running import Scaler, StartScaler, curvature, result, wrong_fields

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
        "env": {"env_id": "Hopper-v5", "env_kwargs": {}, "wrappers": []},
        "steps": 64,
        "num_envs": 2,
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


def test_reopening_launches_only_what_is_missing(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    first = scaler.played(lease, 0)
    again = scaler.played(lease, 0, attempt=1, missing=(1, 3))
    assert (again.num_actors, again.num_evaluations) == (first.num_actors, first.num_evaluations)
    assert again.reason == "attempt 1: 2 of 4 actors launched again"
    assert sorted(scaler.lambdas.rollouts())[-2:] == [
        (lease.job.job_id, 0, 1, 1),
        (lease.job.job_id, 0, 1, 3),
    ]
    assert len(scaler.lambdas.rollouts("evaluate")) == 3
    seeds = {(e["actor_index"], e["seed"]) for e in scaler.lambdas.events if e["mode"] == "sample"}
    assert len(seeds) == 4
    refused = scaler.round_response(lease, 0, attempt=2)
    assert wrong_fields(refused) == ["attempt"]
    assert scaler.round(lease, 1, previous=result(0)).round == 1


def test_lost_episodes_alone_are_launched_again_also_the_final_ones(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL, stop={"max_rounds": 1})
    scaler.round(lease, 0)
    again = scaler.round(lease, 0, attempt=1, missing=(), missing_evaluations=(1,))
    assert (again.num_actors, again.num_evaluations, again.stop) == (4, 3, None)
    scaler.landed(lease.job.job_id)
    last = scaler.played(lease, 1, previous=result(0))
    final = scaler.played(lease, 1, attempt=1, missing=(), missing_evaluations=(0, 2))
    assert (last.stop, final.stop, final.num_evaluations) == ("max_rounds", "max_rounds", 3)
    assert len(scaler.lambdas.rollouts()) == 4
    later = [event[1:] for event in scaler.lambdas.rollouts("evaluate") if event[2]]
    assert sorted(later) == [(0, 1, 1), (1, 1, 0), (1, 1, 2)]


@pytest.mark.parametrize("headroom", [1.02, 1.4], ids=["no episodes yet", "all launched before"])
def test_a_round_that_cannot_be_reopened_ends_with_the_final_episodes_launched_once(
    scaler: Scaler, headroom: float
) -> None:
    spec: dict[str, object] = {
        "actors": {"min": 4, "max": 4},
        "evaluation": {"every_rounds": 1, "episodes": 3},
    }
    budget_usd = _least_budget_usd(scaler, spec) * headroom
    job = scaler.submit(**spec, stop={"budget_usd": budget_usd})
    gate = threading.Event()  # nothing ends, so all that is reserved stays reserved
    scaler.lambdas.behave = lambda task, nth: replace(healthy(task, nth), gate=gate)
    lease = scaler.lease()
    first = scaler.round(lease, 0)
    assert first.num_evaluations == (3 if headroom > 1.2 else 0)
    ended = scaler.round(lease, 0, attempt=1, missing=(0, 1, 2, 3))
    assert (ended.stop, ended.num_actors, ended.num_evaluations) == ("budget", 0, 3)
    assert scaler.round(lease, 0, attempt=1).stop == "budget"
    gate.set()
    scaler.landed(job.job_id)
    episodes = [actor for *_, actor in scaler.lambdas.rollouts("evaluate")]
    assert (len(episodes), set(episodes)) == (3, {0, 1, 2})
    assert len(scaler.lambdas.rollouts()) == 4
    assert scaler.finish(lease, stop_reason="budget").spent_usd <= budget_usd


def _least_budget_usd(scaler: Scaler, spec: dict[str, object]) -> float:
    """Return the worst case of one round, as the scaler tells who submits less."""
    response = scaler.http.post("/v1/jobs", json={**spec, "stop": {"budget_usd": 1e-6}})
    (refusal,) = Problem.model_validate_json(response.content).errors
    return float(refusal.message.split("$")[2].split()[0].rstrip(","))


@pytest.mark.parametrize(("index", "changes"), [(1, {}), (0, {"attempt": 1}), (7, {})])
def test_rounds_out_of_order_change_nothing(
    scaler: Scaler, index: int, changes: dict[str, object]
) -> None:
    lease = scaler.begin(**SMALL)
    assert scaler.round_response(lease, index, **changes).status_code == 422
    assert scaler.rounds(lease.job.job_id).rounds == ()
    assert scaler.lambdas.rollouts() == []


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


def _breaking(task: Task, nth: int) -> Reply:
    """Fail as actor 1, whatever the attempt."""
    if task["mode"] == "sample" and task["actor_index"] == 1:
        return function_error("the simulator broke")
    return healthy(task, nth)


def test_what_failed_for_good_is_announced_counted_and_explained(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    scaler.lambdas.behave = _breaking
    job = scaler.submit(**SMALL)
    scaler.played(scaler.lease(), 0)
    arrivals = cache.wait_arrivals(job.job_id, 0, timeout_s=5)
    assert [(a.mode, a.actor_index) for a in arrivals] == [("sample", 1)]
    assert "the simulator broke" in (arrivals[0].failed or "")
    launches = scaler.rounds(job.job_id).rounds[0].launches
    assert launches is not None
    assert (launches.requested, launches.succeeded, launches.failed) == (7, 6, 1)
    assert launches.launch_s is not None
    assert launches.launch_s > 0
    assert launches.reissued == 1
    trouble = scaler.rounds(job.job_id).rounds[0].trouble
    assert (trouble.lost, trouble.retried) == (1, 1)
    assert "the simulator broke" in trouble.latest


def test_what_fails_in_a_reopened_round_is_announced_with_its_attempt(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    scaler.lambdas.behave = _breaking
    lease = scaler.begin(**SMALL)
    scaler.played(lease, 0)
    scaler.played(lease, 0, attempt=1, missing=(1,))
    arrivals = cache.wait_arrivals(lease.job.job_id, 0, timeout_s=5)
    assert [(a.actor_index, a.attempt) for a in arrivals] == [(1, 0), (1, 1)]


def test_a_cancelled_actor_is_announced_too(scaler: Scaler, cache: TrajectoryCache) -> None:
    scaler.lambdas.rollouts_behave(lambda t, n: report(t, outcome="cancelled"))
    job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
    scaler.played(scaler.lease(), 0)
    assert [a.failed for a in cache.wait_arrivals(job.job_id, 0, timeout_s=5)] == [
        "the actor was cancelled"
    ]


def test_throttles_are_recorded(scaler: Scaler) -> None:
    scaler.lambdas.behave = lambda t, n: (
        throttle() if t["mode"] == "sample" and n < 2 else healthy(t, n)
    )
    job = scaler.submit(**SMALL)
    scaler.played(scaler.lease(), 0)
    launches = scaler.rounds(job.job_id).rounds[0].launches
    assert launches is not None
    assert (launches.succeeded, launches.throttled) == (7, 8)
    assert "nitro_scaler_throttles_total 8.0" in scaler.http.get("/metrics").text


def test_a_cache_that_is_away_does_not_stop_the_round(start_scaler: StartScaler) -> None:
    with start_scaler(cache_url="redis://127.0.0.1:9/0") as scaler:
        scaler.lambdas.rollouts_behave(lambda t, n: function_error("lost"))
        job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        scaler.played(scaler.lease(), 0)
        launches = scaler.rounds(job.job_id).rounds[0].launches
        assert launches is not None
        assert launches.failed == 1


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


def test_the_target_return_ends_a_job(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL, stop={"target_return": 100.0})
    scaler.round(lease, 0)
    reached = EvaluationResult(policy_version=0, returns=(90.0, 110.0), lengths=(1, 1))
    plan = scaler.round(lease, 1, previous=result(0, evaluation=reached))
    assert (plan.stop, plan.reason) == (
        "target_return",
        "evaluation return 100 reached the target 100",
    )
    assert scaler.round_response(lease, 2, previous=None).status_code == 422


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
