"""What a job would cost, said before it is submitted."""

import math

from shared.contracts.views.files import JobEstimate
from tests.services.scaler.running import Scaler, StartScaler, result

SPEC = {
    "actors": {"min": 2, "max": 2},
    "evaluation": {"every_rounds": 0},
    "stop": {"max_rounds": 10},
}


def estimate(scaler: Scaler, **spec: object) -> JobEstimate:
    response = scaler.http.post("/v1/jobs", params={"validate_only": True}, json=spec)
    assert response.status_code == 200, response.text
    return JobEstimate.model_validate_json(response.content)


def test_a_job_is_priced_by_those_like_it_and_not_made(scaler: Scaler) -> None:
    unknown = estimate(scaler, **SPEC)
    assert (unknown.accepted, unknown.checked_environment) == (True, False)
    assert (unknown.expected_usd, unknown.expected_s) == (None, None)
    assert 0 < unknown.worst_round_usd < unknown.worst_usd <= 5.0
    lease = scaler.begin(**SPEC)
    for index in range(3):
        previous = {"previous": result(index - 1)} if index else {}
        scaler.played(lease, index, **previous)
    known = estimate(scaler, **SPEC)
    spent = scaler.record(lease.job.job_id).settled_usd
    assert known.checked_environment
    assert known.expected_usd is not None
    assert math.isclose(known.expected_usd, spent / 2 * 10)
    poor = estimate(scaler, **SPEC | {"stop": {"max_rounds": 1000, "budget_usd": spent}})
    assert poor.expected_usd == poor.worst_usd == spent
    assert estimate(scaler, **SPEC | {"steps_per_actor": 64}).expected_usd is None
    assert len(scaler.http.get("/v1/jobs").json()["jobs"]) == 1


def test_what_would_be_refused_is_said(scaler: Scaler) -> None:
    scaler.submit(**SPEC)
    poor = estimate(scaler, **SPEC | {"stop": {"budget_usd": 1e-6}})
    assert not poor.accepted
    assert [error.field for error in poor.errors] == ["stop.budget_usd"]
    assert poor.worst_usd == 1e-6
    many = estimate(scaler, actors={"min": 2, "max": 1500})
    assert [error.field for error in many.errors] == ["actors.max"]
    wrong = scaler.http.post("/v1/jobs", params={"validate_only": True}, json={"seed": -1})
    assert wrong.status_code == 422


def test_the_worst_is_of_the_dearer_learner_and_the_most_warm(start_scaler: StartScaler) -> None:
    many = {**SPEC, "preset": "standard", "actors": {"min": 8, "max": 8}}
    with start_scaler(provisioned_concurrency=64) as scaler:

        def worst_usd(**changes: object) -> float:
            return estimate(scaler, **{**many, **changes}).worst_round_usd

        assert worst_usd(learner="cpu") < worst_usd(learner="gpu") == worst_usd(learner="auto")
        scaler.submit(**SPEC)  # from here on it is known that there are no images
        assert worst_usd(learner="cpu") == worst_usd(learner="auto") < worst_usd(learner="gpu")
        wide = {"min": 2, "max": 8}
        provisioned = worst_usd(warm="provisioned")
        assert worst_usd(warm="provisioned", actors=wide) == provisioned > worst_usd(warm="reuse")
        assert worst_usd(warm="auto", actors=wide) >= provisioned


def test_where_steps_end_a_job_those_like_it_say_how_many_rounds_it_has(scaler: Scaler) -> None:
    by_steps = SPEC | {"stop": {"max_rounds": 1_000_000, "max_env_steps": 10_000}}
    assert estimate(scaler, **by_steps).expected_usd is None
    lease = scaler.begin(**SPEC)
    scaler.played(lease, 0)
    scaler.played(lease, 1, previous=result(0))
    record = scaler.record(lease.job.job_id)
    told = estimate(scaler, **by_steps)
    assert told.rounds == math.ceil(10_000 / record.job.progress.env_steps)
    assert told.expected_usd is not None
    assert math.isclose(told.expected_usd, record.settled_usd * told.rounds)
