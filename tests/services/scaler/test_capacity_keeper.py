"""Provisioned concurrency of a running scaler: on the alias, while jobs run, and only then."""

import pytest

from tests.services.scaler.lambda_endpoint import LambdaEndpoint
from tests.services.scaler.running import Scaler, StartScaler, result

SPEC = {"actors": {"min": 2, "max": 4}, "evaluation": {"every_rounds": 0}}


def wait_provisioned(lambdas: LambdaEndpoint, count: int) -> None:
    with lambdas.changed:
        assert lambdas.changed.wait_for(lambda: lambdas.provisioned == count, 10)


def wait_looked(scaler: Scaler, lambdas: LambdaEndpoint) -> None:
    """Wait until the keeper has told of a look that began after this call."""
    # A look asks first and tells last: once the next has asked, the one before has told.
    for _ in range(2):
        reads = lambdas.provisioned_reads
        scaler.parts.capacity.reconcile()
        lambdas.wait_seen(provisioned_reads=reads + 1)


def test_environments_are_warm_from_the_first_lease_to_the_last_end(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(provisioned_concurrency=64) as scaler:
        scaler.submit(**SPEC)
        scaler.submit(actors={"min": 2, "max": 100})
        assert lambdas.provision_calls == []
        first = scaler.lease()
        wait_provisioned(lambdas, 4)
        second = scaler.lease()
        wait_provisioned(lambdas, 64)
        scaler.finish(second, status="failed", stop_reason="error")
        wait_provisioned(lambdas, 4)
        scaler.finish(first, status="failed", stop_reason="error")
        wait_provisioned(lambdas, 0)
    assert lambdas.provision_calls == [4, 64, 4, 0]


def test_what_a_dead_scaler_left_on_is_turned_off(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    lambdas.provisioned = 64
    with start_scaler():
        wait_provisioned(lambdas, 0)


def test_warm_time_is_billed_while_the_job_is_held(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(provisioned_concurrency=64) as scaler:
        job = scaler.submit(**SPEC)
        lease = scaler.lease()
        wait_provisioned(lambdas, 4)
        scaler.round(lease, 0)
        scaler.landed(job.job_id)
        scaler.round(lease, 1, previous=result(0))
        lines = scaler.cost(job.job_id).lines
    held_s = next(line.quantity for line in lines if line.item == "learner")
    warm = next(line for line in lines if line.item == "provisioned_concurrency")
    assert (warm.quantity, warm.unit_price_usd) == (4 * held_s, 0.0000041667)


def test_the_account_is_asked_before_more_is_and_a_clip_shows(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    lambdas.concurrency_limit = 103
    with start_scaler(provisioned_concurrency=64) as scaler:
        scaler.submit(actors={"min": 2, "max": 64})
        scaler.lease()
        wait_provisioned(lambdas, 3)
        wait_looked(scaler, lambdas)
        ready = scaler.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert "61 more were wanted" in ready.json()["degraded"]["provisioned_concurrency"]
        metrics = scaler.http.get("/metrics").text
        assert "nitro_scaler_provisioned_clipped_environments 61.0" in metrics
    assert lambdas.provision_calls == [3]


def test_environments_that_fail_to_start_are_told_of_and_asked_for_again(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    lambdas.provision_failure = "FUNCTION_ERROR_INIT_FAILURE"
    with start_scaler(provisioned_concurrency=64) as scaler:
        scaler.submit(**SPEC)
        scaler.lease()
        wait_provisioned(lambdas, 4)
        wait_looked(scaler, lambdas)
        problem = scaler.parts.capacity.problems["provisioned_concurrency"]
        assert problem.startswith("4 environments did not start, tried again: FUNCTION_ERROR_INIT")
        assert set(lambdas.provision_calls) == {4}
        assert len(lambdas.provision_calls) > 1
        lambdas.provision_failure = None
        wait_looked(scaler, lambdas)
        assert (scaler.parts.capacity.problems, scaler.parts.capacity.ready) == ({}, 4)


def test_a_lambda_api_that_refuses_is_survived(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(lambda_endpoint_url="http://127.0.0.1:9", lambda_connect_timeout_s=0.5) as s:
        assert s.http.get("/healthz").status_code == 200
        ready = s.http.get("/readyz")
    assert ready.status_code == 503
    assert [e["field"] for e in ready.json()["errors"]] == ["lambda_endpoint"]


def test_readiness_names_the_cache(start_scaler: StartScaler) -> None:
    with start_scaler(cache_url="redis://:secret@127.0.0.1:9/0") as scaler:
        ready = scaler.http.get("/readyz")
    assert [e["field"] for e in ready.json()["errors"]] == ["cache"]
    assert "secret" not in ready.text


@pytest.mark.parametrize("given", ["ecs_cluster", "ecs_service"])
def test_half_of_the_learner_service_is_refused(start_scaler: StartScaler, given: str) -> None:
    with pytest.raises(ValueError, match="set both NITRO_ECS_CLUSTER and NITRO_ECS_SERVICE"):
        start_scaler(**{given: "x"}).__enter__()
