"""Capacity exists while there is a job and at no other time, whoever dies and whenever."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from services.scaler.capacity.decision import WARM_BEFORE_LEASE_S
from tests.lifecycle.account import SILENT_AFTER_S, Account, FakeTime, LivingScaler, living_scaler

OFF = (0, 0, 0)
UP = (4, 1, 0)
STEPS = (1, 2, 3, 4, 5)
"""In one look the capacity thread asks for the time before heartbeat, environments and each
learner, and after them."""

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""The capacity thread ends with an exception, on purpose."""


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """An account, the time in it, and scalers that start on it."""

    start: Callable[..., AbstractContextManager[LivingScaler]]
    account: Account
    time: FakeTime

    def settled(self) -> tuple[int, int, int]:
        """Return (warm environments, learners of each kind) once nothing changes by itself."""
        self.time.settle()
        return self.account.on()

    def after(self, *seconds: float) -> tuple[int, int, int]:
        """Let time pass, one span after the other; return what is on then."""
        for span in seconds:
            self.time.advance(span)
        return self.account.on()


@pytest.fixture
def here(account: Account, tmp_path: Path, cache_url: str, fake_time: FakeTime) -> Lifecycle:
    start = partial(living_scaler, account, tmp_path, cache_url, fake_time)
    return Lifecycle(start=start, account=account, time=fake_time)


def test_a_queued_job_opens_both_and_its_end_closes_both(here: Lifecycle) -> None:
    with here.start() as scaler:
        assert here.account.on() == OFF
        scaler.submit()
        assert here.settled() == UP
        lease = scaler.lease()
        assert here.after(60) == UP
        scaler.finish(lease)
        assert here.settled() == OFF
        assert scaler.readiness() == {"status": "ready"}


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_every_way_to_end_closes_both(here: Lifecycle, status: str) -> None:
    with here.start() as scaler:
        job_id = scaler.submit()
        lease = scaler.lease()
        if status == "stopped":
            scaler.stop(job_id)
            assert here.settled() == UP, "the learner still has its update in hand"
        scaler.finish(lease, status=status, why="user" if status == "stopped" else "error")
        assert here.after(60, 60) == OFF
        assert scaler.http.delete(f"/v1/jobs/{job_id}").status_code == 204
        assert here.after(60, 60) == OFF


def test_a_job_stopped_in_the_queue_closes_both(here: Lifecycle) -> None:
    with here.start() as scaler:
        job_id = scaler.submit()
        scaler.stop(job_id)
        assert here.settled() == OFF


def test_the_last_of_two_overlapping_jobs_closes(here: Lifecycle) -> None:
    with here.start() as scaler:
        scaler.submit(most=4)
        first = scaler.lease()
        scaler.submit(most=16)
        assert here.settled() == (16, 1, 0)
        scaler.finish(first)
        assert here.settled() == (16, 1, 0)
        second = scaler.lease()
        scaler.finish(second)
        assert here.settled() == OFF


def test_a_job_opens_the_learner_of_its_kind_and_jobs_of_both_kinds_run_side_by_side(
    here: Lifecycle,
) -> None:
    with here.start() as scaler:
        scaler.submit(learner="auto")  # CartPole has a dense network
        assert here.settled() == (4, 0, 1)
        scaler.submit(most=16)
        assert here.settled() == (16, 1, 1)
        on_cores, on_gpu = scaler.lease("cpu"), scaler.lease("gpu")
        assert (on_cores.job.learner, on_gpu.job.learner) == ("cpu", "gpu")
        scaler.finish(on_gpu)
        assert here.settled() == (4, 0, 1)
        scaler.finish(on_cores)
        assert here.settled() == OFF


def test_a_busy_learner_of_the_other_kind_does_not_make_a_job_wait_for_longer(
    here: Lifecycle,
) -> None:
    with here.start(lease_ttl_s=7200) as scaler:
        scaler.submit()
        scaler.lease()
        waiting = scaler.submit(most=16, learner="cpu")
        assert here.settled() == (16, 1, 1)
        here.time.advance(WARM_BEFORE_LEASE_S + 60)
        assert (here.account.on(), scaler.job(waiting).status) == ((4, 1, 1), "queued")
        here.time.advance(1800)
        assert (here.account.on(), scaler.job(waiting).status) == (UP, "failed")


@dies
@pytest.mark.parametrize("step", STEPS)
def test_a_scaler_that_dies_while_opening_is_followed_by_one_that_opens_and_closes(
    here: Lifecycle, step: int
) -> None:
    with here.start() as scaler:
        here.time.die_at_look(step)
        job_id = scaler.submit()
        here.time.wait_dead()
        assert here.account.on() == {1: OFF, 2: OFF, 3: (4, 0, 0)}.get(step, UP)
    with here.start() as scaler:
        assert here.after(60, 60) == UP
        scaler.stop(job_id)
        assert here.after(60, 60) == OFF


@dies
@pytest.mark.parametrize("step", STEPS)
def test_a_scaler_that_dies_while_closing_is_followed_by_one_that_closes(
    here: Lifecycle, step: int
) -> None:
    with here.start() as scaler:
        scaler.submit()
        lease = scaler.lease()
        here.time.die_at_look(step)
        scaler.finish(lease)
        here.time.wait_dead()
        assert here.account.on() == {1: UP, 2: UP, 3: (0, 1, 0)}.get(step, OFF)
    with here.start():
        assert here.after(60, 60) == OFF


def test_a_scaler_that_dies_while_a_job_runs_keeps_it_running(here: Lifecycle) -> None:
    with here.start() as scaler:
        scaler.submit()
        lease = scaler.lease()
    assert here.account.on() == UP
    with here.start() as scaler:
        assert here.after(60, 60) == UP
        scaler.finish(lease)
        assert here.after(60, 60) == OFF


@dies
@pytest.mark.parametrize("step", [2, 3, None])  # all is on, a part of it, or nobody died
def test_when_the_scaler_never_comes_back_the_switch_closes_both(
    here: Lifecycle, step: int | None
) -> None:
    with here.start() as scaler:
        scaler.submit()
        lease = scaler.lease()
        if step is not None:
            here.time.die_at_look(step)
            scaler.finish(lease)
            here.time.wait_dead()
    here.account.look_of_the_switch(here.time.time + SILENT_AFTER_S + 60)
    assert here.account.on() == OFF
    assert here.account.look_of_the_switch(here.time.time + SILENT_AFTER_S + 120) == []


def test_the_switch_leaves_a_living_scaler_alone(here: Lifecycle) -> None:
    with here.start() as scaler:
        scaler.submit()
        scaler.lease()
        for _ in range(20):
            here.time.advance(60)
            assert here.account.look_of_the_switch(here.time.time) == []
        assert here.account.on() == UP


def test_a_job_that_runs_for_too_long_keeps_nothing_on_and_ends(here: Lifecycle) -> None:
    with here.start(longest_job_s=3600) as scaler:
        job_id = scaler.submit()
        lease = scaler.lease()
        _, until = here.account.heartbeat()
        assert here.after(until - here.time.time - 1) == UP
        assert scaler.http.put(f"/v1/leases/{lease.lease_id}").status_code == 200
        here.time.advance(20)
        assert scaler.job(job_id).status == "running", "its learner is being ended"
        assert here.after(60, 60) == OFF
        job = scaler.job(job_id)
        assert (job.status, "NITRO_LONGEST_JOB_S" in (job.error or "")) == ("failed", True)
        here.time.advance(60)
        assert scaler.readiness() == {"status": "ready"}
        # Queued again by its user it has its time again.
        assert scaler.http.post(f"/v1/jobs/{job_id}/resume").status_code == 202
        assert here.settled() == UP
        assert here.account.look_of_the_switch(here.time.time) == []


def test_a_job_whose_learners_end_before_they_take_it_fails(here: Lifecycle) -> None:
    here.account.start_and_end_a_learner()
    with here.start() as scaler:
        job_id = scaler.submit()
        here.time.settle()
        for _ in range(2):
            here.account.start_and_end_a_learner()
            here.time.advance(60)
            assert (here.account.on(), scaler.job(job_id).status) == (UP, "queued")
        here.account.start_and_end_a_learner()
        here.time.advance(60)
        job = scaler.job(job_id)
        assert (here.account.on(), job.status, job.can_go_on) == (OFF, "failed", True)
        assert job.error is not None
        assert job.error.startswith("3 learners ended before")
        # Queued again by its user it has three more.
        assert scaler.http.post(f"/v1/jobs/{job_id}/resume").status_code == 202
        here.time.settle()
        here.time.advance(60)
        assert (here.account.on(), scaler.job(job_id).status) == (UP, "queued")


def test_a_job_waits_half_an_hour_for_a_learner_and_longer_for_one_that_is_busy(
    here: Lifecycle,
) -> None:
    with here.start(lease_ttl_s=7200) as scaler:
        scaler.submit()
        first = scaler.lease()
        waiting = scaler.submit()
        here.time.advance(3600)
        assert scaler.job(waiting).status == "queued"
        scaler.finish(first)
        here.time.settle()
        here.time.advance(1790)
        assert (here.account.on(), scaler.job(waiting).status) == ((0, 1, 0), "queued")
        here.time.advance(60)
        job = scaler.job(waiting)
        assert (here.account.on(), job.status) == (OFF, "failed")
        assert "no learner took the job within 30 minutes" in (job.error or "")


def test_a_job_that_no_learner_comes_for_ends(here: Lifecycle) -> None:
    with here.start(longest_job_s=3600, learner_wait_s=7200) as scaler:
        job_id = scaler.submit()
        assert here.settled() == UP
        here.time.advance(WARM_BEFORE_LEASE_S + 60)
        assert (here.account.on(), scaler.job(job_id).status) == ((0, 1, 0), "queued")
        here.time.advance(6000)
        assert (here.account.on(), scaler.job(job_id).status) == ((0, 1, 0), "queued")
        here.after(600, 60)
        assert (here.account.on(), scaler.job(job_id).status) == (OFF, "failed")


def test_the_switch_ends_what_runs_beyond_its_time_though_the_scaler_lives(here: Lifecycle) -> None:
    with here.start(longest_job_s=3600) as scaler:
        scaler.submit()
        scaler.lease()
        _, until = here.account.heartbeat()
    here.account.look_of_the_switch(until)
    # The scaler was silent for long by then: a fresh heartbeat with an old end stands for one
    # that lives and cannot close.
    here.account.turn_on_the_learners()
    here.account.write_heartbeat(at=until + 30, until=until)
    assert here.account.look_of_the_switch(until + 60) == ["gpu learner", "cpu learner"]
    assert here.account.on() == OFF


def test_what_fails_is_tried_again_and_shows(here: Lifecycle) -> None:
    here.account.delete_service()
    with here.start() as scaler:
        scaler.submit()
        here.time.settle()
        assert here.account.provisioned() == 4
        readiness = scaler.http.get("/readyz")
        assert readiness.status_code == 200
        assert readiness.json()["status"] == "degraded"
        assert list(readiness.json()["degraded"]) == ["gpu_learner"]
        metrics = scaler.http.get("/metrics").text
        assert 'nitro_scaler_capacity_degraded{part="gpu_learner"} 1.0' in metrics
        assert 'nitro_scaler_capacity_failures_total{part="gpu_learner"}' in metrics
        here.account.create_service(here.account.service)
        assert here.after(60) == UP
        assert scaler.readiness() == {"status": "ready"}


def test_nothing_is_opened_as_long_as_the_heartbeat_cannot_be_written(here: Lifecycle) -> None:
    with here.start() as scaler:
        here.account.dynamodb.delete_table(TableName=here.account.table)
        job_id = scaler.submit()
        assert here.settled() == OFF
        degraded = scaler.readiness()["degraded"]
        assert degraded == dict.fromkeys(
            ("heartbeat", "provisioned_concurrency", "gpu_learner"),
            "failed at the last look and is tried again at the next; the scaler's log says why",
        )
        here.account.create_table()
        assert here.after(60) == UP
        # What is on stays on meanwhile, and what is not needed goes.
        here.account.dynamodb.delete_table(TableName=here.account.table)
        assert here.after(60) == UP
        scaler.stop(job_id)
        assert here.settled() == OFF
        here.account.create_table()


@dies
def test_the_heartbeat_is_written_before_anything_is_opened(here: Lifecycle) -> None:
    with here.start(longest_job_s=3600) as scaler:
        assert here.account.heartbeat() == (here.time.time, 0)
        here.time.die_at_look(2)
        scaler.submit()
        here.time.wait_dead()
        at, until = here.account.heartbeat()
        assert at == here.time.time
        assert until > here.time.time + 3600
        assert here.account.on() == OFF
    # Its one job wants a GPU: nothing speaks for the learner of the other kind.
    here.account.turn_on_the_learners()
    assert here.account.look_of_the_switch(at + 60) == ["cpu learner"]
