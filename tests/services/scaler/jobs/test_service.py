"""The jobs API, over HTTP."""

import concurrent.futures
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
import redis

from services.scaler.api.guard import OPEN_PATHS
from services.scaler.jobs import catalogue
from shared.artifacts.local import LocalArtifacts
from shared.cache.client import TrajectoryCache
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobPage
from shared.contracts.problem import Problem
from shared.contracts.rounds import EvaluationResult
from shared.hyperparameters.presets import complete_sets
from tests.services.scaler.lambda_endpoint import (
    HOPPER,
    IMAGES,
    LambdaEndpoint,
    Reply,
    function_error,
    healthy,
    report,
    throttle,
)
from tests.services.scaler.running import Scaler, StartScaler, result


def problem(scaler: Scaler, spec: object, *, status: int = 422) -> Problem:
    return scaler.refused(spec, status=status)


def test_a_job_is_queued_with_its_environment_and_a_readable_id(scaler: Scaler) -> None:
    response = scaler.http.post("/v1/jobs", json={"env_id": "Hopper-v5", "seed": 3})
    job = Job.model_validate_json(response.content)
    assert (response.status_code, job.status, job.environment) == (202, "checking", None)
    assert response.headers["location"] == f"/v1/jobs/{job.job_id}"
    job = scaler.checked(job.job_id)
    assert job.job_id.startswith("hopper-v5-")
    assert (job.status, job.spec.seed, job.environment) == ("queued", 3, HOPPER)
    assert job.full_hyperparameters == complete_sets()["ppo", "paper"].model_dump()
    assert scaler.job(job.job_id) == job


def test_the_environment_is_asked_about_once(scaler: Scaler) -> None:
    for seed in range(3):
        scaler.submit(seed=seed)
    scaler.submit(env_kwargs={"a": 1})
    assert [e["mode"] for e in scaler.lambdas.events] == ["describe", "describe"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"actors": {"min": 0}}, "actors.min"),
        ({"actors": {"min": 9, "max": 8}}, "actors.min"),
        ({"actors": {"min": "many"}}, "actors.min"),
        ({"actors": {"max": 2.5}}, "actors.max"),
        ({"hyperparameters": {"foo": 1}}, "hyperparameters.foo"),
        ({"hyperparameters": {"clip": -1}}, "hyperparameters.clip"),
        ({"hyperparameters": {"clip": None}}, "hyperparameters.clip"),
        ({"env_id": "module:Name"}, "env_id"),
        ({"env_id": 5}, "env_id"),
        ({"env_kwargs": {"a": {"b": 1}}}, "env_kwargs.a"),
        ({"stop": {"budget_usd": 0}}, "stop.budget_usd"),
        ({"stop": {"budget_usd": "Infinity"}}, "stop.budget_usd"),
        ({"stop": {"budget_usd": "5"}}, "stop.budget_usd"),
        ({"stop": {"budget_usd": True}}, "stop.budget_usd"),
        ({"env_kwargs": {"a": None}}, "env_kwargs.a"),
        ({"scaling": {"policy": "nitro", "window": 1}}, "scaling.window"),
        ({"scaling": {"policy": "fixed", "num_actors": 99}}, "scaling.num_actors"),
        ({"scaling": {"policy": "none"}}, "scaling"),
        ({"steps_per_actor": 10, "envs_per_actor": 3}, "steps_per_actor"),
        ({"unknown": 1}, "unknown"),
        ({"env_kwargs": {"text": "x" * 257}}, "env_kwargs.text"),
        ({"env_kwargs": {"file": "/etc/passwd"}}, "env_kwargs.file"),
        ({"env_kwargs": {f"text{i}": "x" * 250 for i in range(12)}}, "env_kwargs"),
        ({"seed": -1}, "seed"),
        ([], "body"),
    ],
)
def test_a_wrong_field_is_named(lasting_scaler: Scaler, spec: object, field: str) -> None:
    assert [e.field for e in problem(lasting_scaler, spec).errors] == [field]
    assert lasting_scaler.lambdas.events == []


def test_values_that_do_not_go_together_with_the_preset_are_refused(scaler: Scaler) -> None:
    impala = {"algorithm": "impala", "preset": "standard"}
    decay, steered = {"learning_rate_decay": "linear"}, {"kl_target": 0.01}
    (error,) = problem(scaler, {**impala, "hyperparameters": decay}).errors
    assert error.field == "hyperparameters"
    assert error.message.startswith("kl_target would undo learning_rate_decay")
    scaler.submit(**impala, hyperparameters=steered)
    # The preset for images has the decay, and no steering.
    scaler.lambdas.behave = lambda t, n: Reply(body=IMAGES.model_dump(mode="json"))
    images = {**impala, "env_id": "ALE/Qbert-v5"}
    (error,) = problem(scaler, {**images, "hyperparameters": steered}).errors
    assert error.field == "hyperparameters"
    assert scaler.submit(**images, hyperparameters=decay).full_hyperparameters["kl_target"] == 0


def test_a_target_without_evaluations_is_refused_but_a_job_that_has_one_is_read(
    scaler: Scaler,
) -> None:
    spec = {"stop": {"target_return": 300.0}, "evaluation": {"every_rounds": 0}}
    (error,) = problem(scaler, spec).errors
    assert error.field == "stop.target_return"
    assert error.message.startswith("300 needs evaluations to compare with, but ")
    assert "evaluation.every_rounds is 0" in error.message
    assert JobSpec.model_validate(spec).stop.target_return == 300.0
    scaler.submit(stop=spec["stop"], evaluation={"every_rounds": 1})


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"sede": 1}, "sede", "no such field; did you mean seed?"),
        ({"actors": {"mni": 1}}, "actors.mni", "no such field; did you mean actors.min?"),
        (
            {"hyperparameters": {"learning_rte": 1}},
            "hyperparameters.learning_rte",
            "no such field; did you mean hyperparameters.learning_rate?",
        ),
        (
            {"env_id": "my:Env"},
            "env_id",
            "must be a registered name, such as Hopper-v5 or ALE/Qbert-v5: letters, digits and "
            "_ . / - only, so no import path",
        ),
        (
            {"steps_per_actor": 10, "envs_per_actor": 3},
            "steps_per_actor",
            "10 must be a multiple of envs_per_actor (3)",
        ),
    ],
)
def test_a_wrong_field_is_explained(
    lasting_scaler: Scaler, spec: object, field: str, message: str
) -> None:
    (error,) = problem(lasting_scaler, spec).errors
    assert (error.field, error.message) == (field, message)


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


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", r'"\ud800"'])
def test_a_value_that_could_not_be_written_again_is_refused(
    lasting_scaler: Scaler, value: str
) -> None:
    body = f'{{"env_kwargs": {{"gravity": {value}}}}}'
    response = lasting_scaler.http.post(
        "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 422
    assert [e["field"] for e in response.json()["errors"]] == ["env_kwargs.gravity"]


def test_every_wrong_field_is_listed_once(lasting_scaler: Scaler) -> None:
    spec = {"seed": "x", "actors": {"min": 0, "max": 0}, "hyperparameters": {"a": None, "b": 1}}
    fields = [e.field for e in problem(lasting_scaler, spec).errors]
    assert {"seed", "actors.min", "actors.max"} <= set(fields)
    assert len(fields) == len(set(fields))


def test_json_that_is_none_is_a_bad_request(lasting_scaler: Scaler) -> None:
    response = lasting_scaler.http.post(
        "/v1/jobs", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("headers", "got"),
    [
        (
            {"Content-Type": "application/x-www-form-urlencoded"},
            "'application/x-www-form-urlencoded'",
        ),
        ({}, "none"),
    ],
)
def test_json_that_does_not_say_so_is_told_what_to_send(
    lasting_scaler: Scaler, headers: dict[str, str], got: str
) -> None:
    body = b'{"env_id": "CartPole-v1"}'
    response = lasting_scaler.http.post("/v1/jobs", content=body, headers=headers)
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {
            "field": "body",
            "message": f"was not read as JSON: send Content-Type: application/json, got {got}",
        }
    ]


@pytest.mark.parametrize(
    ("field", "between", "message"),
    [
        ("env_id", " ", "'Nope-v0' is no registered environment"),
        ("env_kwargs.colour", " ", "is not allowed"),
        ("wrappers.1.name", " ", "'Fade' is no registered wrapper"),
        ("wrappers.0", ": ", "ClipReward cannot be put around the environment"),
        ("env_id", " ", "'Mine-v0' cannot be built: it says\nmore than a line"),
    ],
)
def test_what_the_actor_refuses_is_refused_in_its_words(
    scaler: Scaler, field: str, between: str, message: str
) -> None:
    said = field + between + message
    scaler.lambdas.behave = lambda t, n: function_error(said, kind="UnsupportedEnvironment")
    error = problem(scaler, {"env_id": "Nope-v0"}).errors[0]
    assert (error.field, error.message) == (field, message)
    assert len(scaler.lambdas.events) == 1


def test_an_actor_that_cannot_be_asked_is_no_fault_of_the_job(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "PATIENCE_S", 0.2)
    for behave in (
        lambda t, n: throttle(),
        lambda t, n: function_error("Task timed out", kind="Sandbox.Timedout"),
    ):
        scaler.lambdas.behave = behave
        assert "cannot be asked" in problem(scaler, {}, status=503).detail
    scaler.lambdas.behave = lambda t, n: Reply(body={"env_id": "x"})
    problem(scaler, {}, status=502)


def test_an_actor_is_asked_three_times_about_an_environment(scaler: Scaler) -> None:
    scaler.lambdas.behave = lambda t, n: healthy(t, n) if n == 2 else function_error("broke")
    scaler.submit()
    scaler.lambdas.behave = lambda t, n: function_error("broke")
    problem(scaler, {"env_kwargs": {"a": 1}}, status=503)
    assert len(scaler.lambdas.events) == 6


def test_an_actor_that_breaks_while_it_mentions_a_field_refuses_nothing(scaler: Scaler) -> None:
    scaler.lambdas.behave = lambda t, n: function_error("no room for env_id", kind="OSError")
    assert "cannot be asked" in problem(scaler, {}, status=503).detail


def test_an_environment_that_ends_the_actors_process_is_refused(scaler: Scaler) -> None:
    why = "RequestId: 1 Error: Runtime exited with error: signal: segmentation fault"
    scaler.lambdas.behave = lambda t, n: function_error(why, kind="Runtime.ExitError")
    (error,) = problem(scaler, {"env_id": "Mine-v0"}).errors
    assert error.field == "env_id"
    assert error.message.startswith("'Mine-v0' ended the actor's process each time: ")
    assert why in error.message


def test_no_job_is_admitted_before_the_concurrency_limit_is_known(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    lambdas.account_answer = b"{}"
    with start_scaler() as scaler:
        assert "the concurrency limit is not known" in problem(scaler, {}, status=503).detail
        lambdas.account_answer = None
        assert scaler.submit().status == "queued"


def test_what_cannot_fit_is_refused_with_the_numbers(start_scaler: StartScaler) -> None:
    with start_scaler(cache_memory_mb=1) as scaler:
        scaler.lambdas.concurrency_limit = 10
        spec = {"actors": {"min": 8, "max": 64}}
        errors = {e.field: e.message for e in problem(scaler, spec).errors}
        poor = {**spec, "stop": {"budget_usd": 0.01}}
        errors |= {e.field: e.message for e in problem(scaler, poor).errors}
    assert set(errors) == {"actors.max", "steps_per_actor", "stop.budget_usd"}
    assert "64 actors exceed the limit of 10" in errors["actors.max"]
    assert "the cache has 1 MB" in errors["steps_per_actor"]
    assert "$0.01 is below the worst case" in errors["stop.budget_usd"]


@pytest.mark.parametrize(
    ("reserved", "reserved_by_others", "limit"),
    [(20, 0, 20), (20, 900, 20), (5000, 0, 1000), (None, 0, 1000), (None, 980, 20)],
)
def test_what_other_functions_or_this_one_have_reserved_is_the_limit(
    start_scaler: StartScaler, reserved: int | None, reserved_by_others: int, limit: int
) -> None:
    with start_scaler(lambda_reserved_concurrency=reserved) as scaler:
        scaler.lambdas.reserved_by_others = reserved_by_others
        spec = {"evaluation": {"every_rounds": 0}, "stop": {"budget_usd": 1e4}}
        (error,) = problem(scaler, {**spec, "actors": {"min": 1, "max": limit + 1}}).errors
        assert f"{limit + 1} actors exceed the limit of {limit} concurrent" in error.message
        assert scaler.submit(**spec, actors={"min": 1, "max": limit}).status == "queued"


def test_the_same_key_and_body_give_the_same_job(scaler: Scaler) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = scaler.http.post("/v1/jobs", json={"seed": 1}, headers=headers)
    again = scaler.http.post("/v1/jobs", json={"seed": 1}, headers=headers)
    other = scaler.http.post("/v1/jobs", json={"seed": 2}, headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 422)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert "Idempotency-Key" in other.json()["detail"]


def test_a_malformed_key_is_named(lasting_scaler: Scaler) -> None:
    response = lasting_scaler.http.post("/v1/jobs", json={}, headers={"Idempotency-Key": "a b"})
    assert [e["field"] for e in response.json()["errors"]] == ["Idempotency-Key"]


def test_the_same_key_at_the_same_time_makes_one_job(scaler: Scaler) -> None:
    def post() -> str:
        headers = {"Idempotency-Key": "k-2"}
        return str(scaler.http.post("/v1/jobs", json={}, headers=headers).json()["job_id"])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = {f.result() for f in [pool.submit(post) for _ in range(8)]}
    assert len(ids) == 1


def test_jobs_are_listed_newest_first_page_by_page(scaler: Scaler) -> None:
    ids = [scaler.submit(seed=i).job_id for i in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = JobPage.model_validate_json(scaler.http.get("/v1/jobs", params=query).content)
        seen += [job.job_id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ids[::-1]
    scaler.http.post(f"/v1/jobs/{ids[2]}/stop")
    stopped = scaler.http.get("/v1/jobs", params={"status": "stopped"}).json()["jobs"]
    assert [job["job_id"] for job in stopped] == [ids[2]]


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
    assert response.status_code == 422
    assert [e["field"] for e in response.json()["errors"]] == ["cursor"]


def test_an_id_that_could_be_a_path_is_refused(lasting_scaler: Scaler) -> None:
    for bad in ("..%2f..%2fetc", "A", "a_b", "a" * 64):
        response = lasting_scaler.http.get(f"/v1/jobs/{bad}")
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"


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
    job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.landed(job.job_id)
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    scaler.http.post(f"/v1/jobs/{job.job_id}/stop")
    cost = scaler.cost(job.job_id)
    assert cost.reserved_usd == 0
    assert cost.settled_usd > 0


def test_a_stopped_job_resumes_with_its_unfinished_round_afresh(scaler: Scaler) -> None:
    job = scaler.submit(actors={"min": 2, "max": 2}, stop={"max_rounds": 5})
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    scaler.finish(lease, status="stopped", stop_reason="user")
    response = scaler.http.post(f"/v1/jobs/{job.job_id}/resume", json={"max_rounds": 9})
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    resumed = scaler.lease()
    assert resumed.job.spec.stop.max_rounds == 9
    assert resumed.job.full_hyperparameters == job.full_hyperparameters
    assert resumed.job.progress.rounds == 1
    plan = scaler.round(resumed, 1, previous=result(0))
    assert (plan.num_actors, plan.age_s) == (2, 0)
    scaler.landed(job.job_id)
    assert sorted(scaler.lambdas.rollouts()) == sorted(
        (job.job_id, index, 0, actor) for index in (0, 1, 1) for actor in (0, 1)
    )


def test_a_round_launched_again_while_actors_of_the_first_launch_run_is_billed_apart(
    start_scaler: StartScaler,
) -> None:
    first_may_end = threading.Event()
    with start_scaler(finish_wait_s=0.0, ledger_clock="wall") as scaler:
        scaler.lambdas.behave = lambda t, n: (
            healthy(t, n)
            if t["mode"] == "describe"
            else Reply(
                body=report(t).body,
                billed_ms=100 if n else 5000,
                gate=None if n else first_may_end,
            )
        )
        job = scaler.submit(actors={"min": 2, "max": 2}, evaluation={"every_rounds": 0})
        lease = scaler.lease()
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 2)
        scaler.finish(lease, status="stopped", stop_reason="user")
        assert scaler.cost(job.job_id).reserved_usd > 0
        scaler.http.post(f"/v1/jobs/{job.job_id}/resume")
        resumed = scaler.lease()
        scaler.round(resumed, 0)
        scaler.lambdas.wait_events("sample", 4)
        first_may_end.set()
        scaler.landed(job.job_id)
        scaler.round(resumed, 1, previous=result(0))
        scaler.landed(job.job_id)
        scaler.finish(resumed, status="stopped", stop_reason="user")
        cost = scaler.cost(job.job_id)
        assert scaler.parts.launches.in_flight() == 0
    assert cost.reserved_usd == 0
    billed = [(e.round, e.quantity) for e in cost.lines if e.item == "lambda_duration"]
    assert sorted(billed) == [(0, 0.2), (0, 10.0), (1, 10.0)]


def test_an_actor_of_before_a_resume_that_fails_later_is_not_taken_for_its_successor(
    start_scaler: StartScaler, cache: TrajectoryCache
) -> None:
    may_end = threading.Event()
    with start_scaler(finish_wait_s=0.0) as scaler:
        scaler.lambdas.behave = lambda t, n: (
            healthy(t, n)
            if t["mode"] == "describe"
            else replace(report(t, outcome="stored" if n else "cancelled"), gate=may_end)
        )
        job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        lease = scaler.lease()
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 1)
        scaler.finish(lease, status="stopped", stop_reason="user")
        scaler.http.post(f"/v1/jobs/{job.job_id}/resume")
        scaler.round(scaler.lease(), 0)
        scaler.lambdas.wait_events("sample", 2)
        may_end.set()
        scaler.landed(job.job_id)
    assert cache.answered(job.job_id, 0) == []


def test_resuming_removes_the_rounds_leftovers(scaler: Scaler, cache: TrajectoryCache) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1})
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.landed(job.job_id)
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
        ({"rounds": 3}, "rounds"),
    ],
)
def test_resuming_can_only_raise(
    scaler: Scaler, request_body: dict[str, object], field: str
) -> None:
    job = scaler.submit()
    scaler.http.post(f"/v1/jobs/{job.job_id}/stop")
    response = scaler.http.post(f"/v1/jobs/{job.job_id}/resume", json=request_body)
    assert response.status_code == 422
    assert [e.field for e in Problem.model_validate_json(response.content).errors] == [field]
    assert scaler.job(job.job_id).status == "stopped"


def test_a_job_whose_time_is_up_resumes_only_with_more_of_it(scaler: Scaler) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1}, stop={"max_wall_s": 0.001})
    lease = scaler.lease()
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop == "max_wall"
    scaler.finish(lease, status="stopped", stop_reason="max_wall")
    path = f"/v1/jobs/{job.job_id}/resume"
    for body in ({}, {"max_wall_s": 0.0005}):
        response = scaler.http.post(path, json=body)
        assert response.status_code == 422
        assert [e["field"] for e in response.json()["errors"]] == ["max_wall_s"]
    assert scaler.http.post(path, json={"max_wall_s": 600}).status_code == 202
    resumed = scaler.lease()
    assert resumed.job.spec.stop.max_wall_s == 600
    assert scaler.round(resumed, 1, previous=result(0)).stop is None


def test_a_budget_that_is_too_small_for_the_jobs_own_learner_is_refused_at_once(
    scaler: Scaler,
) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1}, stop={"budget_usd": 0.8})
    lease = scaler.lease()
    scaler.round(lease, 0)
    slow = result(0)
    slow = slow.model_copy(update={"timing": slow.timing.model_copy(update={"update_s": 900.0})})
    assert scaler.round(lease, 1, previous=slow).stop == "budget"
    scaler.finish(lease, status="stopped", stop_reason="budget")
    response = scaler.http.post(f"/v1/jobs/{job.job_id}/resume", json={})
    assert response.status_code == 422
    assert [e["field"] for e in response.json()["errors"]] == ["budget_usd"]


def test_a_job_that_died_with_its_learner_is_billed_to_the_end_of_its_lease(
    start_scaler: StartScaler,
) -> None:
    now = [1_800_000_000.0]
    with start_scaler(now=lambda: now[0], ledger_clock="wall") as scaler:
        job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        scaler.round(scaler.lease(), 0)
        scaler.landed(job.job_id)
        now[0] += 48 * 3600
        scaler.parts.jobs.expire(job.job_id)
        held_s = [line.quantity for line in scaler.cost(job.job_id).lines if line.item == "learner"]
        assert scaler.job(job.job_id).status == "failed"
    assert held_s == [30.0]


@pytest.mark.parametrize(
    ("status", "stop_reason"), [("stopped", "user"), ("succeeded", "max_rounds")]
)
def test_a_job_whose_rounds_are_done_resumes_only_with_more_of_them(
    scaler: Scaler, status: str, stop_reason: str
) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1}, stop={"max_rounds": 1})
    lease = scaler.lease()
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop == "max_rounds"
    scaler.finish(lease, status=status, stop_reason=stop_reason)
    path = f"/v1/jobs/{job.job_id}/resume"
    assert scaler.http.post(path).json()["errors"] == [
        {"field": "max_rounds", "message": "1 rounds are done already; ask for more than that"}
    ]
    resumed = scaler.http.post(path, json={"max_rounds": 2}).json()
    assert (resumed["status"], resumed["stop_reason"], resumed["finished_at"]) == (
        "queued",
        None,
        None,
    )
    assert scaler.round(scaler.lease(), 1, previous=result(0)).stop is None


def test_a_job_whose_last_evaluation_reached_its_target_is_not_given_more(scaler: Scaler) -> None:
    job = scaler.submit(
        actors={"min": 1, "max": 1},
        stop={"max_rounds": 1, "target_return": 100.0},
        evaluation={"every_rounds": 5, "episodes": 2},
    )
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.round(lease, 1, previous=result(0))
    reached = EvaluationResult(policy_version=1, returns=(80.0, 120.0), lengths=(1, 1))
    scaler.finish(lease, final_evaluation=reached)
    path = f"/v1/jobs/{job.job_id}/resume"
    assert scaler.http.post(path, json={"max_rounds": 9}).status_code == 409


def test_a_job_whose_run_folder_is_gone_makes_its_rounds_again_only_if_that_is_said(
    scaler: Scaler,
) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.landed(job.job_id)
    scaler.round(lease, 1, previous=result(0))
    scaler.landed(job.job_id)
    scaler.finish(lease, status="stopped", stop_reason="user")
    resume = f"/v1/jobs/{job.job_id}/resume"
    needless = scaler.http.post(resume, json={"from_scratch": True})
    assert needless.status_code == 409
    assert "continues from it" in needless.json()["detail"]
    shutil.rmtree(scaler.runs_dir / job.job_id)
    refused = scaler.http.post(resume)
    assert refused.status_code == 409
    assert "would run, and bill, its 1 rounds again" in refused.json()["detail"]
    assert "--from-scratch" in refused.json()["detail"]
    assert scaler.job(job.job_id).status == "stopped"
    assert scaler.http.post(resume, json={"from_scratch": True}).json()["status"] == "queued"


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


def test_a_finished_job_can_be_forgotten_with_its_files(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1})
    folder = scaler.runs_dir / job.job_id
    (folder / "checkpoints").mkdir(parents=True)
    path = f"/v1/jobs/{job.job_id}"
    lease = scaler.lease()
    scaler.round(lease, 0)
    cache.publish_policy(job.job_id, 0, b"weights")
    assert scaler.http.delete(path).status_code == 409
    scaler.finish(lease)
    assert scaler.http.delete(path).status_code == 204
    assert scaler.http.delete(path).status_code == 404
    assert not folder.exists()
    assert cache.fetch_policy(job.job_id, 0) is None


def test_files_that_cannot_be_removed_are_named_and_the_job_is_kept(scaler: Scaler) -> None:
    job = scaler.submit()
    scaler.http.post(f"/v1/jobs/{job.job_id}/stop")
    scaler.runs_dir.mkdir()
    in_the_way = scaler.runs_dir / job.job_id
    in_the_way.touch()
    response = scaler.http.delete(f"/v1/jobs/{job.job_id}")
    assert response.status_code == 503
    assert str(in_the_way) in Problem.model_validate_json(response.content).detail
    assert scaler.job(job.job_id).status == "stopped"


def during_file_removal(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen while a job's files are being removed."""
    remove = LocalArtifacts.delete_job

    def slowly(files: LocalArtifacts, job_id: str) -> None:
        happens()
        remove(files, job_id)

    monkeypatch.setattr(LocalArtifacts, "delete_job", slowly)


def test_a_deleted_job_leaves_nothing_in_the_cache(
    scaler: Scaler, cache: TrajectoryCache, cache_url: str
) -> None:
    job = scaler.submit(actors={"min": 2, "max": 2}, evaluation={"every_rounds": 0})
    lease = scaler.lease()
    for index in range(5):
        scaler.round(lease, index, previous=result(index - 1) if index else None)
        scaler.landed(job.job_id)
        cache.publish_policy(job.job_id, index, b"w")
        for actor in range(2):
            cache.store_result(job.job_id, index, mode="sample", actor_index=actor, payload=b"t")
        cache.close_round(job.job_id, index)
        cache.free_round(job.job_id, index)
        cache.delete_policy(job.job_id, index - 2)
    scaler.finish(lease, status="failed", stop_reason="error")
    assert scaler.http.delete(f"/v1/jobs/{job.job_id}").status_code == 204
    with redis.Redis.from_url(cache_url) as server:
        assert server.keys(f"*{job.job_id}*") == []


@pytest.mark.parametrize(
    ("call", "body"),
    [("resume", {}), ("scaling", {"scaling": {"policy": "fixed", "num_actors": 4}})],
)
def test_a_job_neither_resumes_nor_changes_while_it_is_deleted(
    scaler: Scaler, call: str, body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scaler.submit()
    path = f"/v1/jobs/{job.job_id}"
    scaler.http.post(f"{path}/stop")
    answers: list[httpx.Response] = []
    during_file_removal(
        monkeypatch, lambda: answers.append(scaler.http.post(f"{path}/{call}", json=body))
    )
    assert scaler.http.delete(path).status_code == 204
    (refused,) = answers
    assert refused.status_code == 409
    assert "is being deleted" in Problem.model_validate_json(refused.content).detail
    assert scaler.http.get(path).status_code == 404


def test_a_deletion_that_failed_is_repeated_and_cannot_be_undone(scaler: Scaler) -> None:
    job = scaler.submit()
    path = f"/v1/jobs/{job.job_id}"
    scaler.http.post(f"{path}/stop")
    scaler.runs_dir.mkdir()
    in_the_way = scaler.runs_dir / job.job_id
    in_the_way.touch()
    for _ in range(2):
        assert scaler.http.delete(path).status_code == 503
        assert scaler.http.post(f"{path}/resume").status_code == 409
    in_the_way.unlink()
    assert scaler.http.delete(path).status_code == 204
    assert scaler.http.get(path).status_code == 404


def test_a_learner_is_heard_while_many_jobs_wait_for_their_environment(scaler: Scaler) -> None:
    scaler.submit()
    lease = scaler.lease()
    described = threading.Event()
    scaler.lambdas.behave = lambda t, n: replace(healthy(t, n), gate=described)
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        jobs = [pool.submit(scaler.submit, env_id="Walker2d-v5") for _ in range(60)]
        try:
            scaler.lambdas.wait_events("describe", 1 + 8)
            known = scaler.http.post("/v1/jobs", json={})  # its environment waits for no actor
            assert (known.status_code, known.json()["status"]) == (201, "queued")
            for _ in range(20):
                heard = scaler.http.put(f"/v1/leases/{lease.lease_id}", timeout=5)
                assert heard.status_code == 200
        finally:
            described.set()
        assert len({job.result().job_id for job in jobs}) == 60


def test_a_job_is_deleted_though_its_last_actors_are_booked_meanwhile(
    start_scaler: StartScaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    with start_scaler(finish_wait_s=0.0) as scaler:
        scaler.lambdas.behave = lambda t, n: replace(
            healthy(t, n), gate=None if t["mode"] == "describe" else may_end
        )
        job = scaler.submit(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        lease = scaler.lease()
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 1)
        scaler.finish(lease)

        def end_them() -> None:
            may_end.set()
            scaler.landed(job.job_id)

        during_file_removal(monkeypatch, end_them)
        assert scaler.http.delete(f"/v1/jobs/{job.job_id}").status_code == 204
        assert scaler.http.get(f"/v1/jobs/{job.job_id}").status_code == 404


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
