"""Provisioned concurrency of a running scaler: on the alias, while jobs run, and only then."""

import re

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
        scaler.reconcile()
        lambdas.wait_seen(provisioned_reads=reads + 1)


def kept_warm(scaler: Scaler, job_id: str) -> list[float]:
    """Environments of 1 GB that were billed, for each round that took time."""
    lines = scaler.cost(job_id).lines
    held_s = {line.round: line.quantity for line in lines if line.item == "learner"}
    warm_gb_s = {
        line.round: line.quantity for line in lines if line.item == "provisioned_concurrency"
    }
    return [round(warm_gb_s[index] / held_s[index], 6) for index in sorted(held_s)]


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
        wait_provisioned(lambdas, 64)  # the most of the deployment
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


def test_only_what_the_policy_can_ask_for_is_kept_warm_and_billed(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(provisioned_concurrency=64) as scaler:
        job = scaler.submit(**SPEC, scaling={"policy": "fixed", "num_actors": 3})
        lease = scaler.lease()
        wait_provisioned(lambdas, 3)
        scaler.round(lease, 0)
        scaler.landed(job.job_id)
        scaler.round(lease, 1, previous=result(0))
        assert kept_warm(scaler, job.job_id) == [3.0]
    assert lambdas.provision_calls == [3]


def test_as_the_score_decays_fewer_are_kept_warm_five_minutes_at_a_time(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    now = [1_800_000_000.0]
    wall = {"now": lambda: now[0], "ledger_clock": "wall"}
    with start_scaler(provisioned_concurrency=64, **wall) as scaler:
        spec = {**SPEC, "scaling": {"policy": "nitro", "decay": 0.5}}
        job = scaler.submit(**spec)
        lease = scaler.lease()
        wait_provisioned(lambdas, 4)
        scaler.round(lease, 0)
        scaler.landed(job.job_id)
        for index, passed_s in ((1, 299.0), (2, 1.0), (3, 10.0)):
            now[0] += passed_s
            scaler.round(lease, index, previous=result(index - 1))
            scaler.landed(job.job_id)
            if index == 2:
                wait_provisioned(lambdas, 2)
        assert kept_warm(scaler, job.job_id) == [4.0, 4.0, 2.0]
        # A policy that may want more gets it once the five minutes are over.
        body = {"scaling": {"policy": "fixed", "num_actors": 3}}
        assert scaler.http.post(f"/v1/jobs/{job.job_id}/scaling", json=body).status_code == 202
        for index, passed_s in ((4, 289.0), (5, 1.0)):
            now[0] += passed_s
            scaler.round(lease, index, previous=result(index - 1))
            scaler.landed(job.job_id)
        wait_provisioned(lambdas, 3)
        assert kept_warm(scaler, job.job_id) == [4.0, 4.0, 2.0, 2.0, 2.0]
    assert lambdas.provision_calls == [4, 2, 3]


def test_where_a_projection_is_billed_its_time_counts(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    now = [1_800_000_000.0]
    with start_scaler(provisioned_concurrency=64, now=lambda: now[0]) as scaler:
        job = scaler.submit(**SPEC, scaling={"policy": "nitro", "decay": 0.5})
        lease = scaler.lease()
        scaler.round(lease, 0)
        scaler.landed(job.job_id)
        for index, update_s in ((1, 200.0), (2, 200.0), (3, 1.0)):
            now[0] += 3600.0
            timing = result(0).timing.model_copy(update={"update_s": update_s})
            ended = result(index - 1, timing=timing.model_dump())
            scaler.round(lease, index, previous=ended)
            scaler.landed(job.job_id)
        # 200 s after the first plan are too few, 400 s are not.
        assert kept_warm(scaler, job.job_id) == [4.0, 4.0, 2.0]


def test_more_are_kept_warm_only_where_the_budget_has_room_for_a_round_with_them(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    now = [1_800_000_000.0]
    spec = {
        "actors": {"min": 2, "max": 64},
        "scaling": {"policy": "fixed", "num_actors": 2},
        "evaluation": {"every_rounds": 0},
    }
    wall = {"now": lambda: now[0], "ledger_clock": "wall"}
    with start_scaler(provisioned_concurrency=64, **wall) as scaler:
        refused = scaler.http.post("/v1/jobs", json={**spec, "stop": {"budget_usd": 0.0001}})
        (least,) = re.findall(r"at least \$([0-9.]+)", refused.text)
        # Five minutes with 2 warm environments cost $0.09.
        job = scaler.submit(**spec, stop={"budget_usd": float(least) + 0.1})
        lease = scaler.lease()
        scaler.round(lease, 0)
        scaler.landed(job.job_id)
        body = {"scaling": {"policy": "fixed", "num_actors": 64}}
        assert scaler.http.post(f"/v1/jobs/{job.job_id}/scaling", json=body).status_code == 202
        now[0] += 300.0
        plan = scaler.round(lease, 1, previous=result(0))
        assert (plan.stop, plan.requested) == (None, 64)
        assert 2 <= plan.num_actors < 10
        wait_looked(scaler, lambdas)
    assert lambdas.provision_calls == [2]


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
        assert problem.startswith(
            "4 environments did not start and are retried: FUNCTION_ERROR_INIT"
        )
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


@pytest.mark.parametrize("given", ["ecs_cluster", "ecs_gpu_family", "ecs_cpu_family"])
def test_half_of_what_learners_tasks_need_is_refused(start_scaler: StartScaler, given: str) -> None:
    with pytest.raises(ValueError, match="set NITRO_ECS_CLUSTER, NITRO_ECS_CPU_FAMILY"):
        start_scaler(**{given: "x"}).__enter__()
