"""External jobs over HTTP: leased by id, previewed, sized by their client, without a learner."""

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from shared.contracts.jobs import Job, ResumeRequest
from shared.contracts.leases import Lease
from shared.contracts.problem import Problem
from shared.contracts.rounds import RoundPlan, RoundRequest
from tests.patience import ANSWER_S
from tests.services.scaler.running import Scaler, StartScaler, result

EXTERNAL = {
    "learner": "external",
    "actors": {"min": 2, "max": 4},
    "scaling": {"policy": "fixed", "num_actors": 3},
    "evaluation": {"every_rounds": 0},
}


def leased(scaler: Scaler, **changes: object) -> Lease:
    job = scaler.submit(**{**EXTERNAL, **changes})
    body = {"learner_id": "pool-1", "job_id": job.job_id, "wait_s": 0.0}
    response = scaler.http.post("/v1/leases", json=body)
    assert response.status_code == 200, response.text
    return Lease.model_validate_json(response.content)


def preview(scaler: Scaler, lease: Lease, index: int, **more: object) -> RoundPlan:
    request = RoundRequest.model_validate(
        {"lease_id": lease.lease_id, "policy_version": index, **more}
    )
    response = scaler.http.post(
        f"/v1/jobs/{lease.job.job_id}/rounds/{index}?plan_only=true",
        content=request.model_dump_json(),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 200, response.text
    return RoundPlan.model_validate_json(response.content)


def test_a_preview_is_the_plan_and_neither_launches_nor_writes_anything(scaler: Scaler) -> None:
    lease = leased(scaler)
    expected = preview(scaler, lease, 0)
    assert (expected.num_actors, expected.stop) == (3, None)
    assert scaler.lambdas.rollouts() == []
    assert scaler.rounds(lease.job.job_id).rounds == ()
    assert scaler.job(lease.job.job_id).spent_usd == 0.0
    plan = scaler.round(lease, 0)
    assert plan == expected.model_copy(update={"deadline_s": plan.deadline_s})
    scaler.landed(lease.job.job_id)
    assert len(scaler.lambdas.rollouts()) == 3
    assert preview(scaler, lease, 1, previous=result(0)).round == 1


def test_a_preview_says_why_there_is_no_next_round(scaler: Scaler) -> None:
    lease = leased(scaler, stop={"max_rounds": 1})
    scaler.round(lease, 0)
    scaler.landed(lease.job.job_id)
    assert preview(scaler, lease, 1, previous=result(0)).stop == "max_rounds"
    scaler.http.post(f"/v1/jobs/{lease.job.job_id}/stop")
    assert preview(scaler, lease, 1, previous=result(0)).stop == "user"


def test_the_client_may_say_how_many_actors_within_the_range(scaler: Scaler) -> None:
    lease = leased(scaler)
    plan = scaler.round(lease, 0, num_actors=2)
    assert (plan.num_actors, plan.reason) == (2, "client: 2 actors asked for")
    scaler.landed(lease.job.job_id)
    refused = ask(scaler, lease, 1, num_actors=5, previous=result(0).model_dump(mode="json"))
    assert [error.field for error in refused.errors] == ["num_actors"]
    assert "[2, 4]" in refused.errors[0].message


def test_the_client_may_end_the_job_with_a_final_evaluation(scaler: Scaler) -> None:
    lease = leased(scaler, evaluation={"every_rounds": 5, "episodes": 2})
    scaler.played(lease, 0)
    plan = scaler.round(lease, 1, previous=result(0), ends="budget")
    assert (plan.stop, plan.num_actors, plan.num_evaluations) == ("budget", 0, 2)
    assert plan.reason == "the client ends the job"


@pytest.mark.parametrize("said", [{"num_actors": 2}, {"ends": "user"}])
def test_nobody_else_may_decide_about_a_round(scaler: Scaler, said: dict[str, object]) -> None:
    lease = scaler.begin(actors={"min": 2, "max": 4})
    refused = ask(scaler, lease, 0, **said)
    assert [error.field for error in refused.errors] == [*said]
    assert "external" in refused.errors[0].message


def ask(scaler: Scaler, lease: Lease, index: int, **more: object) -> Problem:
    body = {"lease_id": lease.lease_id, "policy_version": index, **more}
    response = scaler.http.post(f"/v1/jobs/{lease.job.job_id}/rounds/{index}", json=body)
    assert response.status_code == 422, response.text
    return Problem.model_validate_json(response.content)


def test_its_bill_has_no_line_of_a_learner(scaler: Scaler) -> None:
    lease = leased(scaler)
    scaler.round(lease, 0)
    scaler.landed(lease.job.job_id)
    done = scaler.finish(lease)
    cost = scaler.cost(lease.job.job_id)
    assert done.learner == "external"
    assert cost.settled_usd > 0
    assert "lambda_duration" in cost.by_item
    assert "learner" not in cost.by_item
    assert "The learner is your own program, which is not billed." in cost.assumptions
    assert {each.learner_instance for each in cost.serverful} <= {"p3.2xlarge"}


def test_a_client_that_falls_silent_loses_the_job_which_ends_by_itself(
    start_scaler: StartScaler,
) -> None:
    quick = {"lease_ttl_s": 0.2, "heartbeat_every_s": 0.1, "client_grace_s": 2.0}
    with start_scaler(**quick) as scaler:
        lease = leased(scaler)
        scaler.round(lease, 0)
        job = ended(scaler, lease.job.job_id)
        assert (job.status, job.stop_reason, job.error) == ("stopped", "client_gone", None)
        response = scaler.http.put(f"/v1/leases/{lease.lease_id}")
        assert response.status_code in (404, 409)
        resumed = scaler.http.post(f"/v1/jobs/{job.job_id}/resume")
        assert resumed.status_code == 409
        assert "open a new ActorPool" in Problem.model_validate_json(resumed.content).detail


def test_one_that_nobody_comes_for_ends_likewise(start_scaler: StartScaler) -> None:
    with start_scaler(client_grace_s=0.2) as scaler:
        job = ended(scaler, scaler.submit(**EXTERNAL).job_id)
        assert (job.status, job.stop_reason) == ("stopped", "client_gone")


def test_one_that_should_stop_and_has_no_client_has_ended_by_its_user(
    start_scaler: StartScaler,
) -> None:
    quick = {"lease_ttl_s": 0.2, "heartbeat_every_s": 0.1, "client_grace_s": 60.0}
    with start_scaler(**quick) as scaler:
        lease = leased(scaler)
        scaler.http.post(f"/v1/jobs/{lease.job.job_id}/stop")
        job = ended(scaler, lease.job.job_id)
        assert (job.status, job.stop_reason) == ("stopped", "user")


@pytest.mark.parametrize("limit", ["budget", "time"])
def test_one_whose_client_does_nothing_but_renew_its_lease_ends_with_its_limits(
    start_scaler: StartScaler, limit: str
) -> None:
    now = [1000.0]
    settings = {"ledger_clock": "wall", "lease_ttl_s": 1e6}
    with start_scaler(now=lambda: now[0], **settings) as scaler:
        capacity = scaler.parts.capacity
        capacity.rule = replace(capacity.rule, longest_job_s=3600.0)
        budget_usd = 0.05 if limit == "budget" else 100.0
        lease = leased(scaler, stop={"budget_usd": budget_usd})
        job_id = lease.job.job_id
        scaler.played(lease, 0)
        spent_at = capacity.rule.spent_at(scaler.record(job_id), now[0])
        now[0] = spent_at if limit == "budget" else now[0] + 2 * 3600.0
        assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code == 200
        scaler.reconcile()
        job = ended(scaler, job_id)
        assert job.stop_reason == ("budget" if limit == "budget" else "error")
        assert job.spent_usd <= budget_usd * (1 + 1e-9)
        assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code in (404, 409)


def test_one_that_has_money_again_when_its_end_is_decided_goes_on(
    start_scaler: StartScaler,
) -> None:
    now = [1000.0]
    settings = {"ledger_clock": "wall", "lease_ttl_s": 1e6}
    with start_scaler(now=lambda: now[0], **settings) as scaler:
        capacity = scaler.parts.capacity
        job_id = leased(scaler, stop={"budget_usd": 0.05}).job.job_id
        now[0] = capacity.rule.spent_at(scaler.record(job_id), now[0])
        expire = capacity.expire

        more = ResumeRequest(budget_usd=5.0)

        async def meanwhile(*asked: Any) -> None:
            await scaler.parts.jobs.resume(job_id, more)
            await expire(*asked)

        capacity.expire = meanwhile
        scaler.reconcile()
        assert scaler.job(job_id).status == "running"


def ended(scaler: Scaler, job_id: str) -> Job:
    give_up_at, pause = time.monotonic() + ANSWER_S, threading.Event()
    while (job := scaler.job(job_id)).finished_at is None:
        assert time.monotonic() < give_up_at, f"{job_id} is {job.status}"
        pause.wait(0.02)
    return job
