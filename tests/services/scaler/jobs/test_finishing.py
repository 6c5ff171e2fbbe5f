"""The end of a job, and of what it has in flight."""

import pytest

from shared.cache.client import TrajectoryCache
from tests.services.scaler.lambda_endpoint import healthy
from tests.services.scaler.running import Scaler, StartScaler

SPEC = {
    "actors": {"min": 3, "max": 3},
    "evaluation": {"every_rounds": 0},
    "stop": {"max_rounds": 2},
}


def test_the_last_word_may_be_said_twice_but_not_changed(scaler: Scaler) -> None:
    lease = scaler.begin(**SPEC)
    first = scaler.finish(lease, status="failed", stop_reason="error", error="out of luck")
    again = scaler.finish(lease)
    assert first == again
    assert (again.status, again.error) == ("failed", "out of luck")
    assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code == 404
    assert scaler.round_response(lease, 0).status_code == 409


def test_finishing_waits_for_replies_that_are_on_their_way(scaler: Scaler) -> None:
    lease = scaler.begin(actors={"min": 20, "max": 20}, evaluation={"every_rounds": 0})
    scaler.lambdas.behave = healthy
    scaler.round(lease, 0)
    scaler.finish(lease, status="stopped", stop_reason="user")
    assert scaler.cost(lease.job.job_id).reserved_usd == 0
    assert len(scaler.lambdas.rollouts()) == 20


def _lease_hash(scaler: Scaler) -> str:
    """Return that of all rollouts so far."""
    (lease_hash,) = {
        task["lease_hash"] for task in scaler.lambdas.events if task["mode"] == "sample"
    }
    return str(lease_hash)


@pytest.mark.parametrize("on_their_way", [True, False])
def test_actors_that_the_end_of_a_job_cannot_wait_for_are_told_not_to_start(
    start_scaler: StartScaler, cache: TrajectoryCache, on_their_way: bool
) -> None:
    with start_scaler(finish_wait_s=0.0) as scaler:
        may_end = scaler.lambdas.hold_rollouts()
        lease = scaler.begin(**SPEC)
        scaler.round(lease, 0)
        if not on_their_way:
            may_end.set()
            scaler.landed(lease.job.job_id)
        scaler.lambdas.wait_events("sample", 2)
        scaler.finish(lease, status="stopped", stop_reason="user")
        assert cache.is_cancelled(lease.job.job_id, _lease_hash(scaler)) == on_their_way
        may_end.set()
        scaler.landed(lease.job.job_id)


def test_actors_launched_for_a_learner_that_died_are_told_too_and_a_resume_does_not_unsay_it(
    start_scaler: StartScaler, cache: TrajectoryCache
) -> None:
    with start_scaler(finish_wait_s=0.0, lease_ttl_s=0.3, heartbeat_every_s=0.1) as scaler:
        may_end = scaler.lambdas.hold_rollouts()
        job = scaler.submit(**SPEC)
        scaler.round(scaler.lease(), 0)
        second = scaler.lease(wait_s=10)
        assert scaler.round(second, 0).age_s > 0  # the same actors: none is launched again
        scaler.lambdas.wait_events("sample", 2)
        scaler.finish(second, status="stopped", stop_reason="user")
        scaler.http.post(f"/v1/jobs/{job.job_id}/resume")
        assert cache.is_cancelled(job.job_id, _lease_hash(scaler))
        may_end.set()
        scaler.landed(job.job_id)


def test_actors_of_a_job_that_is_stopped_while_it_waits_for_a_learner_are_told_too(
    start_scaler: StartScaler, cache: TrajectoryCache
) -> None:
    with start_scaler() as scaler:
        may_end = scaler.lambdas.hold_rollouts()
        lease = scaler.begin(**SPEC)
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 2)
        scaler.http.delete(f"/v1/leases/{lease.lease_id}")
        stopped = scaler.http.post(f"/v1/jobs/{lease.job.job_id}/stop").json()
        assert stopped["status"] == "stopped"
        assert cache.is_cancelled(lease.job.job_id, _lease_hash(scaler))
        may_end.set()
        scaler.landed(lease.job.job_id)
