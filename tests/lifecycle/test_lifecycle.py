"""Capacity exists while there is a job and at no other time, whoever dies and whenever."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from services.scaler.capacity.decision import WARM_BEFORE_LEASE_S
from tests.lifecycle.account import SILENT_AFTER_S, Account, FakeTime, LivingScaler, living_scaler

OFF = (0, 0)
UP = (4, 1)
STEPS = (1, 2, 3, 4)
"""In one look the capacity thread asks for the time before heartbeat, environments and learner, and
after them."""

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""The capacity thread ends with an exception, on purpose."""

StartScaler = Callable[..., AbstractContextManager[LivingScaler]]


@pytest.fixture
def start(account: Account, tmp_path: Path, cache_url: str, fake_time: FakeTime) -> StartScaler:
    return partial(living_scaler, account, tmp_path, cache_url, fake_time)


def two_minutes(time: FakeTime) -> None:
    time.advance(60)
    time.advance(60)


def test_a_queued_job_opens_both_and_its_end_closes_both(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start() as scaler:
        assert account.on() == OFF
        scaler.submit()
        fake_time.settle()
        assert account.on() == UP
        lease = scaler.lease()
        fake_time.advance(60)
        assert account.on() == UP
        scaler.finish(lease)
        fake_time.settle()
        assert account.on() == OFF
        assert scaler.readiness() == {"status": "ready"}


@pytest.mark.parametrize("status", ["succeeded", "stopped", "failed"])
def test_every_way_to_end_closes_both(
    start: StartScaler, account: Account, fake_time: FakeTime, status: str
) -> None:
    with start() as scaler:
        job_id = scaler.submit()
        lease = scaler.lease()
        if status == "stopped":
            scaler.stop(job_id)
            fake_time.settle()
            assert account.on() == UP, "the learner still has its update in hand"
        scaler.finish(lease, status=status, why="user" if status == "stopped" else "error")
        two_minutes(fake_time)
        assert account.on() == OFF
        assert scaler.http.delete(f"/v1/jobs/{job_id}").status_code == 204
        two_minutes(fake_time)
        assert account.on() == OFF


def test_a_job_stopped_in_the_queue_closes_both(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start() as scaler:
        job_id = scaler.submit()
        scaler.stop(job_id)
        fake_time.settle()
        assert account.on() == OFF


def test_the_last_of_two_overlapping_jobs_closes(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start() as scaler:
        scaler.submit(most=4)
        first = scaler.lease()
        scaler.submit(most=16)
        fake_time.settle()
        assert account.on() == (16, 1)
        scaler.finish(first)
        fake_time.settle()
        assert account.on() == (16, 1)
        second = scaler.lease()
        scaler.finish(second)
        fake_time.settle()
        assert account.on() == OFF


@dies
@pytest.mark.parametrize("step", STEPS)
def test_a_scaler_that_dies_while_opening_is_followed_by_one_that_opens_and_closes(
    start: StartScaler, account: Account, fake_time: FakeTime, step: int
) -> None:
    with start() as scaler:
        fake_time.die_at_look(step)
        job_id = scaler.submit()
        fake_time.wait_dead()
        assert account.on() == {1: OFF, 2: OFF, 3: (4, 0), 4: UP}[step]
    with start() as scaler:
        two_minutes(fake_time)
        assert account.on() == UP
        scaler.stop(job_id)
        two_minutes(fake_time)
        assert account.on() == OFF


@dies
@pytest.mark.parametrize("step", STEPS)
def test_a_scaler_that_dies_while_closing_is_followed_by_one_that_closes(
    start: StartScaler, account: Account, fake_time: FakeTime, step: int
) -> None:
    with start() as scaler:
        scaler.submit()
        lease = scaler.lease()
        fake_time.die_at_look(step)
        scaler.finish(lease)
        fake_time.wait_dead()
        assert account.on() == {1: UP, 2: UP, 3: (0, 1), 4: OFF}[step]
    with start():
        two_minutes(fake_time)
        assert account.on() == OFF


def test_a_scaler_that_dies_while_a_job_runs_keeps_it_running(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start() as scaler:
        scaler.submit()
        lease = scaler.lease()
    assert account.on() == UP
    with start() as scaler:
        two_minutes(fake_time)
        assert account.on() == UP
        scaler.finish(lease)
        two_minutes(fake_time)
        assert account.on() == OFF


@dies
@pytest.mark.parametrize("step", [*STEPS, None])
def test_when_the_scaler_never_comes_back_the_switch_closes_both(
    start: StartScaler, account: Account, fake_time: FakeTime, step: int | None
) -> None:
    with start() as scaler:
        scaler.submit()
        lease = scaler.lease()
        if step is not None:
            fake_time.die_at_look(step)
            scaler.finish(lease)
            fake_time.wait_dead()
    account.look_of_the_switch(fake_time.time + SILENT_AFTER_S + 60)
    assert account.on() == OFF
    assert account.look_of_the_switch(fake_time.time + SILENT_AFTER_S + 120) == []


def test_the_switch_leaves_a_living_scaler_alone(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start() as scaler:
        scaler.submit()
        scaler.lease()
        for _ in range(20):
            fake_time.advance(60)
            assert account.look_of_the_switch(fake_time.time) == []
        assert account.on() == UP


def test_a_job_that_runs_for_too_long_keeps_nothing_on_and_ends(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start(longest_job_s=3600) as scaler:
        job_id = scaler.submit()
        lease = scaler.lease()
        _, until = account.heartbeat()
        fake_time.advance(until - fake_time.time - 1)
        assert account.on() == UP
        assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code == 200
        fake_time.advance(20)
        assert scaler.job(job_id).status == "running", "its learner is being ended"
        two_minutes(fake_time)
        assert account.on() == OFF
        job = scaler.job(job_id)
        assert (job.status, "NITRO_LONGEST_JOB_S" in (job.error or "")) == ("failed", True)
        fake_time.advance(60)
        assert scaler.readiness() == {"status": "ready"}
        # Queued again by its user it has its time again.
        assert scaler.http.post(f"/v1/jobs/{job_id}/resume").status_code == 202
        fake_time.settle()
        assert account.on() == UP
        assert account.look_of_the_switch(fake_time.time) == []


def test_a_job_whose_learners_end_before_they_take_it_fails(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    account.start_and_end_a_learner()
    with start() as scaler:
        job_id = scaler.submit()
        fake_time.settle()
        for _ in range(2):
            account.start_and_end_a_learner()
            fake_time.advance(60)
            assert (account.on(), scaler.job(job_id).status) == (UP, "queued")
        account.start_and_end_a_learner()
        fake_time.advance(60)
        job = scaler.job(job_id)
        assert (account.on(), job.status, job.can_go_on) == (OFF, "failed", True)
        assert job.error is not None
        assert job.error.startswith("3 learners ended before")
        # Queued again by its user it has three more.
        assert scaler.http.post(f"/v1/jobs/{job_id}/resume").status_code == 202
        fake_time.settle()
        fake_time.advance(60)
        assert (account.on(), scaler.job(job_id).status) == (UP, "queued")


def test_a_job_waits_half_an_hour_for_a_learner_and_longer_for_one_that_is_busy(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start(lease_ttl_s=7200) as scaler:
        scaler.submit()
        first = scaler.lease()
        waiting = scaler.submit()
        fake_time.advance(3600)
        assert scaler.job(waiting).status == "queued"
        scaler.finish(first)
        fake_time.settle()
        fake_time.advance(1790)
        assert (account.learners(), scaler.job(waiting).status) == (1, "queued")
        fake_time.advance(60)
        job = scaler.job(waiting)
        assert (account.on(), job.status) == (OFF, "failed")
        assert "no learner took the job within 30 minutes" in (job.error or "")


def test_a_job_that_no_learner_comes_for_ends(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start(longest_job_s=3600, learner_wait_s=7200) as scaler:
        job_id = scaler.submit()
        fake_time.settle()
        assert account.on() == UP
        fake_time.advance(WARM_BEFORE_LEASE_S + 60)
        assert (account.on(), scaler.job(job_id).status) == ((0, 1), "queued")
        fake_time.advance(account.heartbeat()[1] - fake_time.time - 1)
        assert (account.on(), scaler.job(job_id).status) == ((0, 1), "queued")
        two_minutes(fake_time)
        assert (account.on(), scaler.job(job_id).status) == (OFF, "failed")


def test_the_switch_ends_what_runs_beyond_its_time_though_the_scaler_lives(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start(longest_job_s=3600) as scaler:
        scaler.submit()
        scaler.lease()
        _, until = account.heartbeat()
    account.look_of_the_switch(until)
    # The scaler was silent for long by then: a fresh heartbeat with an old end stands for one
    # that lives and cannot close.
    account.ecs.update_service(cluster=account.cluster, service=account.service, desiredCount=1)
    account.write_heartbeat(at=until + 30, until=until)
    assert account.look_of_the_switch(until + 60) == ["learner"]
    assert account.on() == OFF


def test_what_fails_is_tried_again_and_shows(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    account.ecs.delete_service(cluster=account.cluster, service=account.service, force=True)
    with start() as scaler:
        scaler.submit()
        fake_time.settle()
        assert account.provisioned() == 4
        readiness = scaler.http.get("/readyz")
        assert readiness.status_code == 200
        assert readiness.json()["status"] == "degraded"
        assert list(readiness.json()["degraded"]) == ["learner"]
        metrics = scaler.http.get("/metrics").text
        assert 'nitro_scaler_capacity_degraded{part="learner"} 1.0' in metrics
        assert 'nitro_scaler_capacity_failures_total{part="learner"}' in metrics
        account.create_service()
        fake_time.advance(60)
        assert account.on() == UP
        assert scaler.readiness() == {"status": "ready"}


def test_nothing_is_opened_as_long_as_the_heartbeat_cannot_be_written(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start() as scaler:
        account.dynamodb.delete_table(TableName=account.table)
        job_id = scaler.submit()
        fake_time.settle()
        assert account.on() == OFF
        degraded = scaler.readiness()["degraded"]
        assert degraded == dict.fromkeys(
            ("heartbeat", "provisioned_concurrency", "learner"),
            "failed at the last look and is tried again at the next; the scaler's log says why",
        )
        account.create_table()
        fake_time.advance(60)
        assert account.on() == UP
        # What is on stays on meanwhile, and what is not needed goes.
        account.dynamodb.delete_table(TableName=account.table)
        fake_time.advance(60)
        assert account.on() == UP
        scaler.stop(job_id)
        fake_time.settle()
        assert account.on() == OFF
        account.create_table()


@dies
def test_the_heartbeat_is_written_before_anything_is_opened(
    start: StartScaler, account: Account, fake_time: FakeTime
) -> None:
    with start(longest_job_s=3600) as scaler:
        assert account.heartbeat() == (fake_time.time, 0)
        fake_time.die_at_look(2)
        scaler.submit()
        fake_time.wait_dead()
        at, until = account.heartbeat()
        assert at == fake_time.time
        assert until > fake_time.time + 3600
        assert account.on() == OFF
