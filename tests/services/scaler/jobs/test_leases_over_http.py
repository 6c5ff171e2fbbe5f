"""Leases over HTTP: waiting for work, taking over, and what a lost lease may not do."""

import concurrent.futures
import threading
from dataclasses import replace

import httpx
import pytest

from tests.services.scaler.lambda_endpoint import healthy
from tests.services.scaler.running import Scaler, StartScaler, result


def test_a_lease_given_up_frees_the_job_and_may_be_given_up_twice(scaler: Scaler) -> None:
    job = scaler.submit()
    lease = scaler.lease()
    for _ in range(2):
        assert scaler.http.delete(f"/v1/leases/{lease.lease_id}").status_code == 204
    assert scaler.job(job.job_id).status == "queued"
    assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code == 404
    assert scaler.lease().job.job_id == job.job_id


def test_without_work_the_answer_is_empty(scaler: Scaler) -> None:
    response = scaler.http.post("/v1/leases", json={"learner_id": "l", "wait_s": 0})
    assert (response.status_code, response.content) == (204, b"")


def test_a_waiting_learner_gets_a_job_the_moment_it_is_queued(scaler: Scaler) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scaler.lease, wait_s=30.0)
        job = scaler.submit()
        assert waiting.result(20).job.job_id == job.job_id


def test_a_waiting_learner_takes_over_when_a_lease_runs_out(start_scaler: StartScaler) -> None:
    with start_scaler(lease_ttl_s=0.5, heartbeat_every_s=0.1) as scaler:
        job = scaler.submit()
        scaler.lease()
        assert scaler.lease(wait_s=30.0).job.job_id == job.job_id


def test_a_learner_that_stopped_waiting_gets_no_job(scaler: Scaler) -> None:
    with pytest.raises(Exception, match="timed out"):
        scaler.http.post("/v1/leases", json={"learner_id": "gone", "wait_s": 30}, timeout=0.2)
    scaler.submit()
    assert scaler.lease(wait_s=10, learner_id="here").heartbeat_every_s == 5.0


def test_two_learners_never_get_the_same_job(scaler: Scaler) -> None:
    for _ in range(4):
        scaler.submit()
    start = threading.Barrier(4)

    def lease() -> str:
        start.wait(10)
        return scaler.lease(wait_s=10).job.job_id

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ids = [f.result() for f in [pool.submit(lease) for _ in range(4)]]
    assert len(set(ids)) == 4


def test_calls_under_a_lost_lease_are_refused(start_scaler: StartScaler) -> None:
    with start_scaler(lease_ttl_s=0.2, heartbeat_every_s=0.1) as scaler:
        scaler.submit()
        old = scaler.lease()
        scaler.lease(wait_s=10)
        assert scaler.round_response(old, 0).status_code == 409
        finish = {"lease_id": old.lease_id, "status": "failed", "stop_reason": "error"}
        path = f"/v1/jobs/{old.job.job_id}/finish"
        assert scaler.http.post(path, json=finish).status_code == 409


def test_leases_survive_a_restart(start_scaler: StartScaler) -> None:
    with start_scaler() as scaler:
        lease = scaler.begin(actors={"min": 1, "max": 1})
        scaler.played(lease, 0)
    with start_scaler() as scaler:
        assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code == 200
        assert scaler.round(lease, 1, previous=result(0)).num_actors == 1


def test_a_plan_says_the_same_as_the_heartbeat_before_it_and_a_resume_begins_anew(
    start_scaler: StartScaler,
) -> None:
    now = [1000.0]
    with start_scaler(now=lambda: now[0], ledger_clock="wall") as scaler:
        job = scaler.submit(
            actors={"min": 1, "max": 400}, stop={"budget_usd": 2.0}, evaluation={"every_rounds": 0}
        )
        gate = threading.Event()
        scaler.lambdas.behave = lambda task, nth: replace(healthy(task, nth), gate=gate)
        lease = scaler.lease()
        assert scaler.round(lease, 0).num_actors > 100  # their worst is most of the budget
        heartbeat = f"/v1/leases/{lease.lease_id}"
        while scaler.http.put(heartbeat).json()["stop"] is None:
            cost = scaler.cost(job.job_id)
            assert cost.settled_usd + cost.reserved_usd <= 2.0
            now[0] += 20
        cost = scaler.cost(job.job_id)
        closing_usd = scaler.record(job.job_id).closing_usd
        assert 2.0 - closing_usd <= cost.settled_usd + cost.reserved_usd < 2.0
        gate.set()
        scaler.landed(job.job_id)
        # Its actors have cost far less than their worst: there would be room for another round.
        assert scaler.http.put(heartbeat).json()["stop"] == "budget"
        plan = scaler.round(lease, 1, previous=result(0))
        assert (plan.stop, plan.num_actors) == ("budget", 0)
        assert plan.reason == "the time since the last plan has used up the budget but for the end"
        assert scaler.finish(lease, status="stopped", stop_reason="budget").spent_usd < 1.5
        path = f"/v1/jobs/{job.job_id}/resume"
        assert scaler.http.post(path, json={"budget_usd": 9.0}).status_code == 202
        resumed = scaler.lease()
        assert scaler.http.put(f"/v1/leases/{resumed.lease_id}").json()["stop"] is None
        assert scaler.round(resumed, 1, previous=result(0)).stop is None


def test_a_learner_says_what_kind_of_jobs_it_wants(scaler: Scaler) -> None:
    on_cores = scaler.submit(learner="auto").job_id  # a dense network
    on_gpu = scaler.submit().job_id

    def asked(kind: str) -> httpx.Response:
        body = {"learner_id": f"{kind}-learner", "kind": kind, "wait_s": 0}
        return scaler.http.post("/v1/leases", json=body)

    assert asked("gpu").json()["job"]["job_id"] == on_gpu
    assert asked("cpu").json()["job"]["job_id"] == on_cores
    assert asked("tpu").status_code == 422
    assert (scaler.job(on_gpu).learner, scaler.job(on_cores).learner) == ("gpu", "cpu")
