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
STEPS = range(1, 7)
"""In one look the capacity task asks for the time before it writes the heartbeat, decides on tasks,
writes that one is asked for, writes that it runs, changes environments, and after that."""

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
        job_id = scaler.submit()
        assert here.settled() == UP
        lease = scaler.lease(job_id)
        assert here.after(60) == UP
        scaler.finish(lease)
        assert here.settled() == OFF
        assert scaler.readiness() == {"status": "ready"}


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_every_way_to_end_closes_both(here: Lifecycle, status: str) -> None:
    with here.start() as scaler:
        job_id = scaler.submit()
        lease = scaler.lease(job_id)
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


def test_each_of_two_overlapping_jobs_has_a_learner_and_the_last_closes(here: Lifecycle) -> None:
    with here.start() as scaler:
        one = scaler.submit(most=4)
        first = scaler.lease(one)
        other = scaler.submit(most=16)
        assert here.settled() == (20, 2, 0)
        scaler.finish(first)
        assert here.settled() == (16, 1, 0)
        second = scaler.lease(other)
        scaler.finish(second)
        assert here.settled() == OFF


def test_a_job_opens_a_learner_of_its_kind_and_jobs_of_both_kinds_run_side_by_side(
    here: Lifecycle,
) -> None:
    with here.start() as scaler:
        small = scaler.submit(learner="auto")  # CartPole has a dense network
        assert here.settled() == (4, 0, 1)
        large = scaler.submit(most=16)
        assert here.settled() == (20, 1, 1)
        on_cores, on_gpu = scaler.lease(small, "cpu"), scaler.lease(large, "gpu")
        assert (on_cores.job.learner, on_gpu.job.learner) == ("cpu", "gpu")
        scaler.finish(on_gpu)
        assert here.settled() == (4, 0, 1)
        scaler.finish(on_cores)
        assert here.settled() == OFF


def test_jobs_beyond_the_most_wait_in_order_and_keep_nothing_warm(here: Lifecycle) -> None:
    with here.start(most_gpu_learners=1) as scaler:
        first = scaler.submit()
        lease = scaler.lease(first)
        waiting = [scaler.submit(), scaler.submit()]
        assert here.after(3600) == UP
        for job_id in waiting:
            job = scaler.job(job_id)
            assert job.status == "queued"
            assert job.waits_for is not None
            assert job.waits_for.reason.startswith("a learner with a GPU: 1 work for earlier jobs")
        scaler.beat(lease)
        scaler.finish(lease)
        assert here.settled() == UP
        assert scaler.job(waiting[0]).waits_for is None
        assert scaler.job(waiting[1]).waits_for is not None
        # What it waited does not count.
        assert here.after(1790) == (0, 1, 0)
        assert scaler.job(waiting[0]).status == "queued"


@dies
@pytest.mark.parametrize("step", STEPS)
def test_a_scaler_that_dies_while_opening_is_followed_by_one_that_opens_and_closes(
    here: Lifecycle, step: int
) -> None:
    with here.start() as scaler:
        here.time.die_at_look(step)
        job_id = scaler.submit()
        here.time.wait_dead()
        assert here.account.on() == {1: OFF, 2: OFF, 3: OFF, 4: (0, 1, 0), 5: (0, 1, 0)}.get(
            step, UP
        )
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
        lease = scaler.lease(scaler.submit())
        here.time.die_at_look(step)
        scaler.finish(lease)
        here.time.wait_dead()
        assert here.account.on() == {1: UP, 2: UP, 3: (4, 0, 0)}.get(step, OFF)
    with here.start():
        assert here.after(60, 60) == OFF


def test_a_scaler_that_dies_while_a_job_runs_keeps_it_running(here: Lifecycle) -> None:
    with here.start() as scaler:
        lease = scaler.lease(scaler.submit())
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
        lease = scaler.lease(scaler.submit())
        if step is not None:
            here.time.die_at_look(step)
            scaler.finish(lease)
            here.time.wait_dead()
    here.account.look_of_the_switch(here.time.time + SILENT_AFTER_S + 60)
    assert here.account.on() == OFF
    assert here.account.look_of_the_switch(here.time.time + SILENT_AFTER_S + 120) == []


def test_the_switch_leaves_a_living_scaler_alone(here: Lifecycle) -> None:
    with here.start() as scaler:
        scaler.lease(scaler.submit())
        for _ in range(20):
            here.time.advance(60)
            assert here.account.look_of_the_switch(here.time.time) == []
        assert here.account.on() == UP


def test_a_job_that_runs_for_too_long_keeps_nothing_on_and_ends(here: Lifecycle) -> None:
    with here.start(longest_job_s=3600) as scaler:
        job_id = scaler.submit()
        lease = scaler.lease(job_id)
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
    with here.start() as scaler:
        job_id = scaler.submit()
        assert here.settled() == UP
        for _ in range(2):
            here.account.end_the_learners()
            here.time.advance(60)
            assert (here.account.on(), scaler.job(job_id).status) == (UP, "queued")
        here.account.end_the_learners()
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


def test_a_job_whose_learner_is_lost_gets_another_once_its_lease_is_over(here: Lifecycle) -> None:
    with here.start(lease_ttl_s=90) as scaler:
        job_id = scaler.submit()
        scaler.lease(job_id)
        here.account.end_the_learners()
        assert here.after(60) == (4, 0, 0)
        assert here.after(30) == UP
        lease = scaler.lease(job_id)
        assert here.after(60) == UP
        scaler.finish(lease)
        assert here.settled() == OFF


def test_a_job_waits_half_an_hour_for_the_learner_that_was_started_for_it(
    here: Lifecycle,
) -> None:
    with here.start() as scaler:
        waiting = scaler.submit()
        assert here.settled() == UP
        here.time.advance(1790)
        assert (here.account.on(), scaler.job(waiting).status) == ((0, 1, 0), "queued")
        here.time.advance(60)
        job = scaler.job(waiting)
        assert (here.account.on(), job.status) == (OFF, "failed")
        assert "no learner took the job within 30 minutes" in (job.error or "")


def test_time_without_a_learner_is_not_time_that_a_job_ran(here: Lifecycle) -> None:
    with here.start(longest_job_s=3600, most_gpu_learners=1) as scaler:
        job_id = scaler.submit()
        lease = scaler.lease(job_id)
        scaler.open_round(lease)
        here.time.advance(1800)
        assert scaler.http.delete(f"/v1/leases/{lease.lease_id}").status_code == 204
        here.time.advance(1700)
        lease = scaler.lease(job_id)
        # 600 s are for a learner that ends its job late.
        here.time.advance(1800 + 600 - 10)
        assert scaler.job(job_id).status == "running"
        assert here.after(20)[1] == 0


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
        scaler.lease(scaler.submit())
        _, until = here.account.heartbeat()
    here.account.look_of_the_switch(until)
    # The scaler was silent for long by then: a fresh heartbeat with an old end stands for one
    # that lives and cannot close.
    here.account.run_a_learner_of_each_kind()
    jobs = {"on-gpu": until, "on-cores": until}
    here.account.write_heartbeat(at=until + 30, until=until, jobs=jobs)
    closed = ["learner of on-cores", "learner of on-gpu"]
    assert here.account.look_of_the_switch(until + 60) == closed
    assert here.account.on() == OFF


def test_what_fails_is_tried_again_and_shows(here: Lifecycle) -> None:
    here.account.lose_the_cluster()
    with here.start() as scaler:
        scaler.submit()
        here.time.settle()
        readiness = scaler.http.get("/readyz")
        assert readiness.status_code == 200
        assert readiness.json()["status"] == "degraded"
        assert list(readiness.json()["degraded"]) == ["learner_tasks"]
        metrics = scaler.http.get("/metrics").text
        assert 'nitro_scaler_capacity_degraded{part="learner_tasks"} 1.0' in metrics
        assert 'nitro_scaler_capacity_failures_total{part="learner_tasks"}' in metrics
        here.account.ecs.create_cluster(clusterName=here.account.cluster)
        assert here.after(60) == UP
        assert scaler.readiness() == {"status": "ready"}


def test_nothing_is_opened_as_long_as_the_heartbeat_cannot_be_written(here: Lifecycle) -> None:
    with here.start() as scaler:
        here.account.dynamodb.delete_table(TableName=here.account.table)
        job_id = scaler.submit()
        assert here.settled() == OFF
        degraded = scaler.readiness()["degraded"]
        assert degraded == {
            "heartbeat": "failed at the last reconciliation and will be retried; the scaler's log "
            "says why",
            "learner_tasks": "nothing is opened without a heartbeat",
        }
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
    # Nothing speaks for a learner of another job.
    here.account.run_a_learner(here.account.gpu_family, of="another")
    assert here.account.look_of_the_switch(at + 60) == ["learner of another"]
