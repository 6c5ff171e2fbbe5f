"""Rounds of which actors are lost, over HTTP: announced, counted, and launched again."""

import threading
from dataclasses import replace

import pytest

from shared.cache.client import TrajectoryCache
from shared.contracts.problem import Problem
from tests.services.scaler.lambda_endpoint import (
    Reply,
    Task,
    function_error,
    healthy,
    report,
    throttle,
)
from tests.services.scaler.rounds.test_service import SMALL
from tests.services.scaler.running import Scaler, StartScaler, result, wrong_fields


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
