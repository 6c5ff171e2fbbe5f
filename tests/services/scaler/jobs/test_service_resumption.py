"""Jobs that go on after they have ended, over HTTP."""

import shutil
import threading
from dataclasses import replace

import pytest

from shared.cache.client import TrajectoryCache
from shared.contracts.rounds import EvaluationResult
from tests.services.scaler.lambda_endpoint import (
    Reply,
    report,
)
from tests.services.scaler.running import Scaler, StartScaler, result, wrong_fields


def test_a_stopped_job_resumes_with_its_unfinished_round_afresh(scaler: Scaler) -> None:
    lease = scaler.begin(actors={"min": 2, "max": 2}, stop={"max_rounds": 5})
    scaler.round(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    scaler.finish(lease, status="stopped", stop_reason="user")
    response = scaler.http.post(f"/v1/jobs/{lease.job.job_id}/resume", json={"max_rounds": 9})
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    resumed = scaler.lease()
    assert resumed.job.spec.stop.max_rounds == 9
    assert resumed.job.full_hyperparameters == lease.job.full_hyperparameters
    assert resumed.job.progress.rounds == 1
    plan = scaler.round(resumed, 1, previous=result(0))
    assert (plan.num_actors, plan.age_s) == (2, 0)
    scaler.landed(lease.job.job_id)
    assert sorted(scaler.lambdas.rollouts()) == sorted(
        (lease.job.job_id, index, 0, actor) for index in (0, 1, 1) for actor in (0, 1)
    )


@pytest.mark.parametrize("is_running", [True, False])
def test_a_job_whose_new_steps_exceed_its_warm_up_is_no_longer_warned(
    scaler: Scaler, is_running: bool
) -> None:
    lease = scaler.begin(
        actors={"min": 2, "max": 2},
        algorithm="sac",
        hyperparameters={"learning_starts": 1000},
        steps_per_actor=256,
        stop={"max_rounds": 1},
    )
    assert any("the policy will not change" in text for text in lease.job.warnings)
    if not is_running:
        scaler.finish(lease, status="stopped", stop_reason="user")
    response = scaler.http.post(f"/v1/jobs/{lease.job.job_id}/resume", json={"max_rounds": 2})
    assert response.json()["warnings"] == []


@pytest.mark.parametrize(("fresh", "first", "end"), [(False, 0, 5), (True, 1, 9)])
def test_a_schedule_stays_as_it_was_or_begins_anew(
    scaler: Scaler, fresh: bool, first: int, end: int
) -> None:
    lease = scaler.begin(actors={"min": 2, "max": 2}, stop={"max_rounds": 5})
    scaler.played(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    scaler.finish(lease, status="stopped", stop_reason="user")
    asked = {"max_rounds": 9, "fresh_schedule": fresh}
    assert scaler.http.post(f"/v1/jobs/{lease.job.job_id}/resume", json=asked).is_success
    decay = scaler.lease().job.decay
    assert (decay.first, decay.end) == (first, end)


def test_a_job_that_goes_on_by_itself_begins_no_new_schedule(scaler: Scaler) -> None:
    lease = scaler.begin(actors={"min": 2, "max": 2}, stop={"max_rounds": 5})
    resume, fresh = f"/v1/jobs/{lease.job.job_id}/resume", {"fresh_schedule": True}
    scaler.played(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    refused = scaler.http.post(resume, json={"max_rounds": 9, **fresh})
    assert refused.status_code == 409
    assert "stop the job first" in refused.json()["detail"]
    assert scaler.job(lease.job.job_id).spec.stop.max_rounds == 5
    scaler.finish(lease, status="stopped", stop_reason="user")
    for _ in range(2):
        # The second is the first again, whose answer was lost.
        assert scaler.http.post(resume, json=fresh).is_success


def test_a_round_launched_again_while_actors_of_the_first_launch_run_is_billed_apart(
    start_scaler: StartScaler,
) -> None:
    first_may_end = threading.Event()
    with start_scaler(finish_wait_s=0.0, ledger_clock="wall") as scaler:
        first = Reply(body=None, billed_ms=5000, gate=first_may_end)
        scaler.lambdas.rollouts_behave(
            lambda t, n: report(t) if n else replace(first, body=report(t).body)
        )
        lease = scaler.begin(actors={"min": 2, "max": 2}, evaluation={"every_rounds": 0})
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 2)
        scaler.finish(lease, status="stopped", stop_reason="user")
        assert scaler.cost(lease.job.job_id).reserved_usd > 0
        resumed = scaler.resumed(lease.job.job_id)
        scaler.round(resumed, 0)
        scaler.lambdas.wait_events("sample", 4)
        first_may_end.set()
        scaler.landed(lease.job.job_id)
        scaler.played(resumed, 1, previous=result(0))
        scaler.finish(resumed, status="stopped", stop_reason="user")
        cost = scaler.cost(lease.job.job_id)
        assert scaler.parts.launches.flights.in_flight() == 0
    assert cost.reserved_usd == 0
    billed = [(e.round, e.quantity) for e in cost.lines if e.item == "lambda_duration"]
    assert sorted(billed) == [(0, 0.2), (0, 10.0), (1, 10.0)]


def test_an_actor_of_before_a_resume_that_fails_later_is_not_taken_for_its_successor(
    start_scaler: StartScaler, cache: TrajectoryCache
) -> None:
    may_end = threading.Event()
    with start_scaler(finish_wait_s=0.0) as scaler:
        scaler.lambdas.rollouts_behave(
            lambda t, n: replace(report(t, outcome="stored" if n else "cancelled"), gate=may_end)
        )
        lease = scaler.begin(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 1)
        scaler.finish(lease, status="stopped", stop_reason="user")
        scaler.round(scaler.resumed(lease.job.job_id), 0)
        scaler.lambdas.wait_events("sample", 2)
        may_end.set()
        scaler.landed(lease.job.job_id)
    assert cache.answered(lease.job.job_id, 0) == []


def test_resuming_removes_the_rounds_leftovers(scaler: Scaler, cache: TrajectoryCache) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1})
    lease = scaler.lease()
    scaler.played(lease, 0)
    scaler.finish(lease, status="failed", stop_reason="error", error="broke")
    cache.store_result(job.job_id, 0, mode="sample", actor_index=0, payload=b"old")
    scaler.http.post(f"/v1/jobs/{job.job_id}/resume")
    assert scaler.job(job.job_id).error is None
    scaler.round(scaler.lease(), 0)
    assert cache.answered(job.job_id, 0) == []


def test_a_job_that_failed_after_its_checkpoint_resumes_behind_the_round(scaler: Scaler) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1}, stop={"max_rounds": 5})
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    scaler.finish(lease, status="failed", stop_reason="error", error="cache is gone")
    scaler.http.post(f"/v1/jobs/{job.job_id}/resume")
    # The learner had written the checkpoint of round 1 before it failed.
    plan = scaler.round(scaler.lease(), 2, previous=result(1))
    assert (plan.round, plan.num_actors, plan.stop) == (2, 1, None)
    assert scaler.job(job.job_id).progress.rounds == 2
    scaler.landed(job.job_id)
    assert sorted(scaler.lambdas.rollouts()) == [(job.job_id, k, 0, 0) for k in (0, 1, 2)]


@pytest.mark.parametrize(
    ("request_body", "field"),
    [
        ({"budget_usd": 1.0}, "budget_usd"),
        ({"max_rounds": 3}, "max_rounds"),
        ({"budget_usd": 0}, "budget_usd"),
        ({"max_wall_s": 100}, "max_wall_s"),
        ({"max_env_steps": 1000}, "max_env_steps"),
        ({"rounds": 3}, "rounds"),
    ],
)
def test_resuming_can_only_raise(
    scaler: Scaler, request_body: dict[str, object], field: str
) -> None:
    job = scaler.submit()
    scaler.http.post(f"/v1/jobs/{job.job_id}/stop")
    response = scaler.http.post(f"/v1/jobs/{job.job_id}/resume", json=request_body)
    assert wrong_fields(response) == [field]
    assert scaler.job(job.job_id).status == "stopped"


def test_a_job_whose_time_is_up_resumes_only_with_more_of_it(scaler: Scaler) -> None:
    lease = scaler.begin(actors={"min": 1, "max": 1}, stop={"max_wall_s": 0.001})
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop == "max_wall"
    scaler.finish(lease, status="stopped", stop_reason="max_wall")
    path = f"/v1/jobs/{lease.job.job_id}/resume"
    for body in ({}, {"max_wall_s": 0.0005}):
        response = scaler.http.post(path, json=body)
        assert wrong_fields(response) == ["max_wall_s"]
    assert scaler.http.post(path, json={"max_wall_s": 600}).status_code == 202
    resumed = scaler.lease()
    assert resumed.job.spec.stop.max_wall_s == 600
    assert scaler.round(resumed, 1, previous=result(0)).stop is None


def test_a_budget_that_is_too_small_for_the_jobs_own_learner_is_refused_at_once(
    scaler: Scaler,
) -> None:
    lease = scaler.begin(actors={"min": 1, "max": 1}, stop={"budget_usd": 0.8})
    scaler.round(lease, 0)
    slow = result(0)
    slow = slow.model_copy(update={"timing": slow.timing.model_copy(update={"update_s": 900.0})})
    assert scaler.round(lease, 1, previous=slow).stop == "budget"
    scaler.finish(lease, status="stopped", stop_reason="budget")
    response = scaler.http.post(f"/v1/jobs/{lease.job.job_id}/resume", json={})
    assert wrong_fields(response) == ["budget_usd"]


@pytest.mark.parametrize(
    ("status", "stop_reason"), [("stopped", "user"), ("succeeded", "max_rounds")]
)
def test_a_job_whose_rounds_are_done_resumes_only_with_more_of_them(
    scaler: Scaler, status: str, stop_reason: str
) -> None:
    lease = scaler.begin(actors={"min": 1, "max": 1}, stop={"max_rounds": 1})
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop == "max_rounds"
    scaler.finish(lease, status=status, stop_reason=stop_reason)
    path = f"/v1/jobs/{lease.job.job_id}/resume"
    assert scaler.http.post(path).json()["errors"] == [
        {"field": "max_rounds", "message": "rounds done already: 1; use a larger number"}
    ]
    resumed = scaler.http.post(path, json={"max_rounds": 2}).json()
    assert (resumed["status"], resumed["stop_reason"], resumed["finished_at"]) == (
        "queued",
        None,
        None,
    )
    assert scaler.round(scaler.lease(), 1, previous=result(0)).stop is None


def test_a_job_that_its_steps_ended_resumes_only_with_more_of_them(scaler: Scaler) -> None:
    stop = {"max_rounds": 9, "max_env_steps": 1}
    lease = scaler.begin(actors={"min": 1, "max": 1}, stop=stop)
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop == "max_env_steps"
    scaler.finish(lease, stop_reason="max_env_steps")
    path = f"/v1/jobs/{lease.job.job_id}/resume"
    made = scaler.job(lease.job.job_id).progress.env_steps
    why = f"{made} are done already; ask for more than that"
    for more in ({}, {"max_rounds": 20}, {"max_env_steps": made}):
        errors = scaler.http.post(path, json=more).json()["errors"]
        assert errors == [{"field": "max_env_steps", "message": why}]
    resumed = scaler.http.post(path, json={"max_env_steps": made + 1}).json()
    assert (resumed["status"], resumed["stop_reason"]) == ("queued", None)
    assert scaler.round(scaler.lease(), 1, previous=result(0)).stop is None


def test_a_job_whose_last_evaluation_reached_its_target_is_not_given_more(scaler: Scaler) -> None:
    lease = scaler.begin(
        actors={"min": 1, "max": 1},
        stop={"max_rounds": 1, "target_return": 100.0},
        evaluation={"every_rounds": 5, "episodes": 2},
    )
    scaler.round(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    reached = EvaluationResult(policy_version=1, returns=(80.0, 120.0), lengths=(1, 1))
    scaler.finish(lease, final_evaluation=reached)
    path = f"/v1/jobs/{lease.job.job_id}/resume"
    assert scaler.http.post(path, json={"max_rounds": 9}).status_code == 409


def test_a_job_whose_run_folder_is_gone_makes_its_rounds_again_only_if_that_is_said(
    scaler: Scaler,
) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
    lease = scaler.lease()
    scaler.played(lease, 0)
    scaler.played(lease, 1, previous=result(0))
    scaler.finish(lease, status="stopped", stop_reason="user")
    resume = f"/v1/jobs/{job.job_id}/resume"
    needless = scaler.http.post(resume, json={"from_scratch": True})
    assert needless.status_code == 409
    assert "continues from it" in needless.json()["detail"]
    shutil.rmtree(scaler.runs_dir / job.job_id)
    refused = scaler.http.post(resume)
    assert refused.status_code == 409
    assert "that repeats and bills its rounds again (1 so far)" in refused.json()["detail"]
    assert "--from-scratch" in refused.json()["detail"]
    assert scaler.job(job.job_id).status == "stopped"
    both = {"from_scratch": True, "fresh_schedule": True}
    assert scaler.http.post(resume, json=both).json()["status"] == "queued"
    assert scaler.lease().job.decay.first == 0


def test_a_job_whose_learner_was_killed_resumes_with_more_rounds(scaler: Scaler) -> None:
    stop = {"max_rounds": 1, "budget_usd": 2}
    job = scaler.submit(actors={"min": 2, "max": 4}, stop=stop)
    scaler.round(scaler.lease(learner_id="one"), 0)
    path = f"/v1/jobs/{job.job_id}/resume"
    raised = scaler.http.post(path, json={"max_rounds": 2, "budget_usd": 3})
    assert raised.status_code == 202
    assert raised.json()["status"] == "running"
    lease = scaler.lease(learner_id="one")
    assert lease.job.spec.stop == job.spec.stop.model_copy(
        update={"max_rounds": 2, "budget_usd": 3.0}
    )
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop is None


def test_a_job_resumes_once_the_cache_has_room_beside_the_other_kind(
    start_scaler: StartScaler,
) -> None:
    # Each takes more than half of it.
    spec = {"preset": "paper", "actors": {"min": 1, "max": 1}, "steps_per_actor": 10_000}
    with start_scaler(cache_memory_mb=2) as scaler:
        on_cores = scaler.submit(learner="cpu", **spec).job_id
        assert scaler.http.post(f"/v1/jobs/{on_cores}/stop").json()["status"] == "stopped"
        on_gpu = scaler.submit(learner="gpu", **spec).job_id
        refused = scaler.http.post(f"/v1/jobs/{on_cores}/resume")
        assert refused.status_code == 409
        assert "wait until one of them has ended" in refused.json()["detail"]
        scaler.http.post(f"/v1/jobs/{on_gpu}/stop")
        assert scaler.http.post(f"/v1/jobs/{on_cores}/resume").status_code == 202


def test_jobs_in_other_states_do_not_resume(scaler: Scaler) -> None:
    job = scaler.submit()
    path = f"/v1/jobs/{job.job_id}/resume"
    assert scaler.http.post(path).status_code == 202  # nothing to change: harmless to repeat
    assert scaler.http.post(path, json={"max_rounds": 99}).status_code == 202  # given at once
    lease = scaler.lease()
    scaler.finish(lease, stop_reason="target_return")
    refused = scaler.http.post(path, json={"max_rounds": 99})
    assert refused.status_code == 409
    assert "succeeded (target_return)" in refused.json()["detail"]
