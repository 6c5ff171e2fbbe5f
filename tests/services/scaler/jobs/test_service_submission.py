"""Jobs that are submitted over HTTP: what is taken in, and what is refused and why."""

import concurrent.futures

import pytest

from services.scaler.jobs import catalogue
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.problem import Problem
from shared.hyperparameters.presets import complete_sets
from tests.services.scaler.lambda_endpoint import (
    HOPPER,
    IMAGES,
    LambdaEndpoint,
    Reply,
    function_error,
    healthy,
    throttle,
)
from tests.services.scaler.running import Scaler, StartScaler, wrong_fields


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
        ({"actors": {"min": 9, "max": 8}}, "actors.min"),
        ({"hyperparameters": {"foo": 1}}, "hyperparameters.foo"),
        ({"hyperparameters": {"clip": None}}, "hyperparameters.clip"),
        ({"env_id": "module:Name"}, "env_id"),
        ({"env_kwargs": {"a": {"b": 1}}}, "env_kwargs.a"),
        ({"stop": {"budget_usd": "Infinity"}}, "stop.budget_usd"),
        ({"scaling": {"policy": "nitro", "window": 1}}, "scaling.window"),
        ({"scaling": {"policy": "fixed", "num_actors": 99}}, "scaling.num_actors"),
        ({"steps_per_actor": 10, "envs_per_actor": 3}, "steps_per_actor"),
        ({"env_kwargs": {"text": "x" * 257}}, "env_kwargs.text"),
        ({"env_kwargs": {"file": "/etc/passwd"}}, "env_kwargs.file"),
        ({"env_kwargs": {f"text{i}": "x" * 250 for i in range(18)}}, "env_kwargs"),
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
    assert error.message.startswith("300 needs evaluations, but ")
    assert "evaluation.every_rounds is 0" in error.message
    assert JobSpec.model_validate(spec).stop.target_return == 300.0
    scaler.submit(stop=spec["stop"], evaluation={"every_rounds": 1})


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"sede": 1}, "sede", "no such field; did you mean seed?"),
        (
            {"algorithm": "sac", "hyperparameters": {"clip": 0.2}},
            "hyperparameters.clip",
            "no such field; clip is for ppo, impact",
        ),
        (
            {"algorithm": "sac", "hyperparameters": {"n_epochs": 3}},
            "hyperparameters.n_epochs",
            "no such field; num_epochs is for ppo, impact",
        ),
        ({"hyperparameters": {"zzz": 3}}, "hyperparameters.zzz", "no such field"),
        ({"actors": {"mni": 1}}, "actors.mni", "no such field; did you mean actors.min?"),
        (
            {"hyperparameters": {"learning_rte": 1}},
            "hyperparameters.learning_rte",
            "no such field; did you mean hyperparameters.learning_rate?",
        ),
        (
            {"env_id": "my envs"},
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


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", r'"\ud800"'])
def test_a_value_that_could_not_be_written_again_is_refused(
    lasting_scaler: Scaler, value: str
) -> None:
    body = f'{{"env_kwargs": {{"gravity": {value}}}}}'
    response = lasting_scaler.http.post(
        "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert wrong_fields(response) == ["env_kwargs.gravity"]


def test_every_wrong_field_is_listed_once(lasting_scaler: Scaler) -> None:
    spec = {"seed": "x", "actors": {"min": 0, "max": 0}, "hyperparameters": {"a": None, "b": 1}}
    fields = [e.field for e in problem(lasting_scaler, spec).errors]
    assert {"seed", "actors.min", "actors.max"} <= set(fields)
    assert len(fields) == len(set(fields))


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
    with start_scaler(account_limit_ttl_s=0.001) as scaler:
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
    assert wrong_fields(response) == ["Idempotency-Key"]


def test_the_same_key_at_the_same_time_makes_one_job(scaler: Scaler) -> None:
    def post() -> str:
        headers = {"Idempotency-Key": "k-2"}
        return str(scaler.http.post("/v1/jobs", json={}, headers=headers).json()["job_id"])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = {f.result() for f in [pool.submit(post) for _ in range(8)]}
    assert len(ids) == 1
