"""The jobs API, over HTTP: what there is, and how a job stops."""

import threading
import time
from dataclasses import replace

import pytest

from services.scaler.api.guard import OPEN_PATHS
from shared.contracts.gradients import GradientCall, GradientGrant, GradientRequest
from shared.contracts.job_spec import JobSpec
from shared.contracts.problem import Problem
from shared.contracts.rounds import EvaluationResult
from tests.patience import ANSWER_S
from tests.services.scaler.lambda_endpoint import healthy
from tests.services.scaler.running import Scaler, StartScaler, wrong_fields


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("/v1/jobs?stauts=running", "stauts", "no such parameter; did you mean status?"),
        ("/v1/jobs?limit=1&page=2&page=3", "page", "no such parameter"),
        ("/v1/jobs/none?verbose=1", "verbose", "no such parameter"),
    ],
)
def test_a_parameter_that_would_have_no_effect_is_refused(
    lasting_scaler: Scaler, path: str, field: str, message: str
) -> None:
    response = lasting_scaler.http.get(path)
    assert response.status_code == 422
    (error,) = Problem.model_validate_json(response.content).errors
    assert (error.field, error.message) == (field, message)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/none"),
        ("POST", "/v1/jobs/none/stop"),
        ("POST", "/v1/jobs/none/resume"),
        ("DELETE", "/v1/jobs/none"),
        ("GET", "/v1/jobs/none/rounds"),
        ("GET", "/v1/jobs/none/cost"),
        ("GET", "/v1/nothing"),
    ],
)
def test_what_is_not_there_is_a_404(lasting_scaler: Scaler, method: str, path: str) -> None:
    response = lasting_scaler.http.request(method, path)
    assert response.status_code == 404
    assert "there is no" in Problem.model_validate_json(response.content).detail


def test_a_method_an_address_does_not_have_is_told_which_it_has(lasting_scaler: Scaler) -> None:
    for path, allowed in (
        ("/v1/jobs", {"GET", "POST"}),
        ("/v1/jobs/none", {"DELETE", "GET"}),
        ("/healthz", {"GET"}),
        ("/openapi.json", {"GET", "HEAD"}),
    ):
        response = lasting_scaler.http.put(path, json={})
        told = response.headers["Allow"]
        assert (response.status_code, set(told.split(", "))) == (405, allowed)
        assert told in Problem.model_validate_json(response.content).detail
    assert lasting_scaler.http.put("/v1/nothing", json={}).status_code == 404


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/none/rounds"])
def test_a_cursor_beyond_all_numbers_of_the_store_is_refused(
    lasting_scaler: Scaler, path: str
) -> None:
    response = lasting_scaler.http.get(path, params={"cursor": str(2**63)})
    assert wrong_fields(response) == ["cursor"]


def test_a_queued_job_stops_at_once_and_a_running_one_when_its_learner_ends_it(
    scaler: Scaler,
) -> None:
    queued, running = scaler.submit(), scaler.submit()
    scaler.http.post(f"/v1/jobs/{queued.job_id}/stop")
    lease = scaler.lease()
    assert lease.job.job_id == running.job_id
    for _ in range(2):
        response = scaler.http.post(f"/v1/jobs/{running.job_id}/stop")
        assert (response.status_code, response.json()["status"]) == (202, "stopping")
    assert scaler.job(queued.job_id).status == "stopped"
    assert scaler.job(queued.job_id).stop_reason == "user"
    assert scaler.http.put(f"/v1/leases/{lease.lease_id}").json()["stop"] == "user"
    plan = scaler.round(lease, 0)
    assert (plan.stop, plan.num_actors, plan.num_evaluations) == ("user", 0, 10)
    evaluation = EvaluationResult(policy_version=0, returns=(1.0, 3.0), lengths=(1, 1))
    done = scaler.finish(lease, status="stopped", stop_reason="user", final_evaluation=evaluation)
    assert (done.status, done.progress.last_return) == ("stopped", 2.0)


def test_stopping_a_job_that_waits_for_another_learner_closes_its_account(
    scaler: Scaler,
) -> None:
    lease = scaler.begin(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
    scaler.played(lease, 0)
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    scaler.http.post(f"/v1/jobs/{lease.job.job_id}/stop")
    cost = scaler.cost(lease.job.job_id)
    assert cost.reserved_usd == 0
    assert cost.settled_usd > 0


def test_so_does_stopping_one_whose_learner_left_gradients_open(scaler: Scaler) -> None:
    lease = scaler.begin(
        learner="functions",
        preset="standard",
        actors={"min": 1, "max": 1},
        evaluation={"every_rounds": 0},
    )
    job_id = lease.job.job_id
    scaler.played(lease, 0)
    calls = (GradientCall(call=0, base=0),)
    request = GradientRequest(lease_id=lease.lease_id, request=0, calls=calls)
    path = f"/v1/jobs/{job_id}/rounds/0/gradients"
    answer = scaler.http.post(path, json=request.model_dump(mode="json"))
    assert GradientGrant.model_validate_json(answer.content).granted
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    deadline = time.monotonic() + ANSWER_S
    while scaler.parts.gradients.flights.in_flight(only=job_id):
        assert time.monotonic() < deadline, "the function is still at work"
    assert scaler.record(job_id).open_gradients
    scaler.http.post(f"/v1/jobs/{job_id}/stop")
    assert scaler.record(job_id).open_gradients == ()
    assert scaler.cost(job_id).reserved_usd == 0
    assert "gradient_requests" in scaler.cost(job_id).by_item


def test_a_job_that_died_with_its_learner_is_billed_to_the_end_of_its_lease(
    start_scaler: StartScaler,
) -> None:
    now = [1_800_000_000.0]
    with start_scaler(now=lambda: now[0], ledger_clock="wall") as scaler:
        job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        scaler.played(scaler.lease(), 0)
        now[0] += 48 * 3600
        scaler.call(scaler.parts.jobs.expire(job.job_id))
        held_s = [line.quantity for line in scaler.cost(job.job_id).lines if line.item == "learner"]
        assert scaler.job(job.job_id).status == "failed"
    assert held_s == [30.0]


def test_a_job_is_given_up_only_while_no_learner_has_it(start_scaler: StartScaler) -> None:
    now = [1_800_000_000.0]
    with start_scaler(now=lambda: now[0]) as scaler:
        job_id = scaler.begin().job.job_id
        scaler.call(scaler.parts.jobs.give_up(job_id, "no machine"))
        assert scaler.job(job_id).status == "running"
        now[0] += 3600
        scaler.call(scaler.parts.jobs.give_up(job_id, "no machine"))
        ended = scaler.job(job_id)
    assert (ended.status, ended.error) == ("failed", "no machine")


def test_a_learner_is_heard_while_many_jobs_wait_for_their_environment(scaler: Scaler) -> None:
    lease = scaler.begin()
    described = threading.Event()
    scaler.lambdas.behave = lambda t, n: replace(healthy(t, n), gate=described)
    try:
        spec = {"env_id": "Walker2d-v5"}
        waiting = [scaler.http.post("/v1/jobs", json=spec).json()["job_id"] for _ in range(60)]
        scaler.lambdas.wait_events("describe", 1 + 8)
        known = scaler.http.post("/v1/jobs", json={})  # its environment waits for no actor
        assert (known.status_code, known.json()["status"]) == (201, "queued")
        for _ in range(20):
            heard = scaler.http.put(f"/v1/leases/{lease.lease_id}", timeout=5)
            assert heard.status_code == 200
    finally:
        described.set()
    assert {scaler.checked(job_id).status for job_id in waiting} == {"queued"}


def test_the_api_description_is_complete(lasting_scaler: Scaler) -> None:
    document = lasting_scaler.http.get("/openapi.json").json()
    assert "/v1/jobs/{job_id}/rounds/{round_index}" in document["paths"]
    assert JobSpec.__name__ in document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description") or operation.get("summary"), (method, path)
            if path.startswith("/v1/"):
                assert "503" in operation["responses"], (method, path, "any call needs the store")
            token: list[object] = [] if path in OPEN_PATHS else [{"HTTPBearer": []}]
            assert operation.get("security", []) == token, (method, path)
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


@pytest.mark.parametrize("path", ["/v1/jobs/", "/healthz/"])
def test_an_address_with_a_slash_too_many_is_none(lasting_scaler: Scaler, path: str) -> None:
    response = lasting_scaler.http.get(path)
    assert response.status_code == 404
    assert Problem.model_validate_json(response.content).status == 404
