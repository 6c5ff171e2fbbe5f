"""Jobs that are checked before they are queued, over HTTP."""

import threading
import time
from dataclasses import replace

from tests.services.scaler.lambda_endpoint import (
    LambdaEndpoint,
    Reply,
    function_error,
    healthy,
    waking,
)
from tests.services.scaler.running import Scaler, StartScaler

ANSWERED_S = 10.0
"""A third of what an API gateway waits for an answer."""


def gated(lambdas: LambdaEndpoint) -> threading.Event:
    """Let actors describe environments only once the event is set."""
    gate = threading.Event()

    def behave(task: dict[str, object], nth: int) -> Reply:
        return replace(healthy(task, nth), gate=gate)

    lambdas.behave = behave
    return gate


def test_a_job_is_taken_in_while_no_actor_answers(scaler: Scaler) -> None:
    gate = gated(scaler.lambdas)
    began = time.monotonic()
    response = scaler.http.post("/v1/jobs", json={})
    assert time.monotonic() - began < ANSWERED_S
    job_id = response.json()["job_id"]
    assert (response.status_code, response.json()["status"]) == (202, "checking")
    scaler.lambdas.wait_events("describe", 1)
    body = {"learner_id": "learner", "wait_s": 0}
    assert scaler.http.post("/v1/leases", json=body).status_code == 204  # not for a learner yet
    policy = {"scaling": {"policy": "fixed", "num_actors": 8}}
    assert scaler.http.post(f"/v1/jobs/{job_id}/scaling", json=policy).status_code == 202
    assert scaler.http.post(f"/v1/jobs/{job_id}/resume").json()["status"] == "checking"
    gate.set()
    assert scaler.checked(job_id).status == "queued"
    assert scaler.lease().job.job_id == job_id


def test_a_learner_that_waits_gets_a_job_as_soon_as_it_is_checked(scaler: Scaler) -> None:
    scaler.http.post("/v1/jobs", json={})
    assert scaler.lease(wait_s=30).job.environment is not None


def test_a_refused_job_says_why_and_is_checked_again_when_it_is_resumed(scaler: Scaler) -> None:
    scaler.lambdas.behave = lambda t, n: function_error("env_id 'Hopper-v5' is none, yet")
    job_id = scaler.http.post("/v1/jobs", json={}).json()["job_id"]
    refused = scaler.checked(job_id)
    assert (refused.status, refused.stop_reason) == ("failed", "refused")
    assert refused.error == "env_id: 'Hopper-v5' is none, yet"
    assert scaler.cost(job_id).settled_usd == 0
    scaler.lambdas.behave = healthy
    assert scaler.http.post(f"/v1/jobs/{job_id}/resume").json()["status"] == "checking"
    queued = scaler.checked(job_id)
    assert (queued.status, queued.error, queued.finished_at) == ("queued", None, None)
    assert scaler.lease().job.job_id == job_id


def test_a_job_that_is_checked_can_be_stopped_and_deleted(scaler: Scaler) -> None:
    gate = gated(scaler.lambdas)
    stopped, deleted = (
        scaler.http.post("/v1/jobs", json={"seed": seed}).json()["job_id"] for seed in (1, 2)
    )
    scaler.lambdas.wait_events("describe", 2)
    assert scaler.http.post(f"/v1/jobs/{stopped}/stop").json()["status"] == "stopped"
    assert scaler.http.delete(f"/v1/jobs/{deleted}").status_code == 204
    gate.set()
    scaler.submit(env_id="Walker2d-v5")  # checked after them
    assert scaler.job(stopped).status == "stopped"
    assert scaler.http.get(f"/v1/jobs/{deleted}").status_code == 404


def test_a_scaler_takes_up_what_the_one_before_was_checking(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    gate = gated(lambdas)
    with start_scaler(shutdown_wait_s=0.01) as scaler:
        job_id = scaler.http.post("/v1/jobs", json={}).json()["job_id"]
        lambdas.wait_events("describe", 1)
    lambdas.behave = healthy
    with start_scaler() as scaler:
        assert scaler.checked(job_id).status == "queued"
    gate.set()


def test_a_job_is_checked_once_the_function_has_woken(scaler: Scaler) -> None:
    scaler.lambdas.behave = lambda task, nth: waking() if nth < 4 else healthy(task, nth)
    job_id = scaler.http.post("/v1/jobs", json={}).json()["job_id"]
    assert scaler.checked(job_id).status == "queued"


def test_an_environment_that_hangs_is_tried_once(scaler: Scaler) -> None:
    tried: list[int] = []

    def behave(task: dict[str, object], nth: int) -> Reply:
        tried.append(nth)
        return function_error("reset did not end", kind="EnvironmentHungError")

    scaler.lambdas.behave = behave
    refused = scaler.checked(scaler.http.post("/v1/jobs", json={}).json()["job_id"])
    assert (refused.stop_reason, len(tried)) == ("refused", 1)
    assert refused.error is not None
    assert refused.error.startswith("env_id: ")
    assert "reset did not end" in refused.error


def test_resuming_a_job_that_is_checked_does_not_check_it_beside_itself(scaler: Scaler) -> None:
    gate = threading.Event()
    asked: list[int] = []

    def behave(task: dict[str, object], nth: int) -> Reply:
        asked.append(nth)
        return replace(healthy(task, nth), gate=gate)

    scaler.lambdas.behave = behave
    job_id = scaler.http.post("/v1/jobs", json={}).json()["job_id"]
    for _ in range(10):
        assert scaler.http.post(f"/v1/jobs/{job_id}/resume").json()["status"] == "checking"
    # Eight checks go on at a time: with one for each call there would be no place for this one.
    other = scaler.http.post("/v1/jobs", json={"env_id": "Walker2d-v5"}).json()["job_id"]
    scaler.lambdas.wait_events("describe", 2)
    gate.set()
    assert {scaler.checked(job).status for job in (job_id, other)} == {"queued"}
    assert len(asked) == 2
