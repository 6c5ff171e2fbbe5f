"""What becomes of launches that were lost with a process, told over HTTP and in the cache."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from services.scaler.book.book import Book
from services.scaler.book.sqlite import SqliteTable
from services.scaler.launching.lambda_function import LambdaApiError, LambdaFunction
from services.scaler.launching.launches import Launches
from services.scaler.launching.lost_launches import LostLaunches
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from services.scaler.settings import Settings
from shared.cache.arrivals import Arrival
from shared.cache.client import TrajectoryCache
from shared.contracts.jobs import Job
from shared.contracts.leases import Lease
from tests.services.scaler.lambda_endpoint import (
    LambdaEndpoint,
    Reply,
    Task,
    function_error,
    healthy,
    report,
)
from tests.services.scaler.money.test_budget import basis
from tests.services.scaler.rounds.test_order import planned
from tests.services.scaler.running import Scaler, StartScaler
from tests.services.scaler.services_without_network import Inline
from tests.services.scaler.simulated_job import ChanceInvoker

SMALL = {"actors": {"min": 2, "max": 4}, "evaluation": {"every_rounds": 2, "episodes": 1}}
PATIENCE_S = 10.0


class Held:
    """Actors that end when they are let go."""

    def __init__(self, scaler: Scaler) -> None:
        self.gate = threading.Event()
        scaler.lambdas.behave = self._behave

    def _behave(self, task: Task, nth: int) -> Reply:
        if task["mode"] == "describe":
            return healthy(task, nth)
        return Reply(body=report(task).body, gate=self.gate)


@contextmanager
def left_behind(start_scaler: StartScaler) -> Iterator[tuple[Job, Lease]]:
    """A round of four actors and an episode, in flight when its scaler ended."""
    with ExitStack() as held:
        with start_scaler(shutdown_wait_s=0.01) as scaler:
            held.callback(Held(scaler).gate.set)
            job = scaler.submit(**SMALL)
            lease = scaler.lease()
            scaler.round(lease, 0)
            scaler.lambdas.wait_events("sample", 4)
            scaler.lambdas.wait_events("evaluate", 1)
        yield job, lease


def announced(cache: TrajectoryCache, job: Job, number: int) -> list[Arrival]:
    """Return what is told of a job's first round, once so many have been."""
    give_up_at = time.monotonic() + PATIENCE_S
    while len(told := cache.answered(job.job_id, 0)) < number:
        assert time.monotonic() < give_up_at, told
        cache.wait_arrivals(job.job_id, 0, timeout_s=0.1)
    return told


def store(cache: TrajectoryCache, job: Job, actor_index: int) -> None:
    cache.store_result(job.job_id, 0, mode="sample", actor_index=actor_index, payload=b"result")


def test_what_an_earlier_scaler_launched_is_lost_once_nothing_as_old_runs(
    start_scaler: StartScaler, lambdas: LambdaEndpoint, cache: TrajectoryCache
) -> None:
    lambdas.oldest_invocation_s = 3600.0
    with left_behind(start_scaler) as (job, _):
        store(cache, job, 2)
        with start_scaler() as scaler:
            waits = scaler.job(job.job_id).waits_for
            assert waits is not None
            assert "launched before the scaler's restart" in waits.reason
            assert len(cache.answered(job.job_id, 0)) == 1
            lambdas.oldest_invocation_s = 0.0
            told = announced(cache, job, 5)
            lost = [(a.mode, a.actor_index) for a in told if a.kind == "vanished"]
            assert lost == [("evaluate", 0), ("sample", 0), ("sample", 1), ("sample", 3)]
            assert scaler.job(job.job_id).waits_for is None


def test_where_nobody_tells_it_is_said_until_when_they_are_waited_for(
    start_scaler: StartScaler, cache: TrajectoryCache
) -> None:
    with left_behind(start_scaler) as (job, lease), start_scaler() as scaler:
        scaler.round(lease, 0)
        waits = scaler.job(job.job_id).waits_for
        assert waits is not None
        assert waits.until is not None
        # The function's time-out, and ten seconds for it to start.
        assert waits.until <= time.time() + 70
        assert scaler.http.get("/v1/jobs").json()["jobs"][0]["waits_for"] is not None
        assert cache.answered(job.job_id, 0) == []


def test_results_lost_with_the_cache_are_made_up_for_by_the_next_learner(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    scaler.lambdas.oldest_invocation_s = 0.0
    job = scaler.submit(**SMALL)
    scaler.round(scaler.lease(learner_id="one"), 0)
    scaler.landed(job.job_id)
    store(cache, job, 1)
    assert len(cache.answered(job.job_id, 0)) == 1
    scaler.round(scaler.lease(learner_id="one"), 0)
    lost = [a.actor_index for a in announced(cache, job, 5) if a.kind == "vanished"]
    assert sorted(lost) == [0, 0, 2, 3]


def test_a_round_that_was_launched_again_is_not_taken_for_lost(
    start_scaler: StartScaler, lambdas: LambdaEndpoint, cache: TrajectoryCache
) -> None:
    lambdas.oldest_invocation_s = 3600.0
    with left_behind(start_scaler) as (job, lease), start_scaler() as scaler:
        gate = Held(scaler).gate
        scaler.round(lease, 0, attempt=1)
        scaler.lambdas.wait_events("sample", 8)
        lambdas.oldest_invocation_s = 0.0
        gate.set()
        scaler.landed(job.job_id)
        scaler.round(lease, 0, attempt=1)
        # The fake actors bring nothing: of the second attempt all are lost, of the first none.
        assert {arrival.attempt for arrival in announced(cache, job, 5)} == {1}


def test_an_actor_that_a_reopening_did_not_launch_stays_as_its_own_attempt_left_it(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    scaler.lambdas.oldest_invocation_s = 0.0

    def behave(task: Task, nth: int) -> Reply:
        played = task["mode"] == "evaluate"
        return function_error("boom", kind="RolloutError") if played else healthy(task, nth)

    scaler.lambdas.behave = behave
    job = scaler.submit(**SMALL)
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.landed(job.job_id)
    store(cache, job, 0)
    store(cache, job, 2)
    scaler.round(lease, 0, attempt=1, missing=(1, 3))
    scaler.landed(job.job_id)
    cache.drop_results(job.job_id, 0, mode="sample", actor_indices=[2])
    scaler.round(lease, 0, attempt=1, missing=(1, 3))
    told = announced(cache, job, 5)
    lost = [(a.mode, a.actor_index) for a in told if a.kind == "vanished"]
    # Also an actor of the first attempt whose result is gone, and not the episode that failed.
    assert lost == [("sample", 1), ("sample", 2), ("sample", 3)]
    assert [(a.mode, a.kind) for a in told if a.mode == "evaluate"] == [("evaluate", "environment")]


def test_an_answer_that_cannot_be_understood_does_not_end_the_watch(
    start_scaler: StartScaler, lambdas: LambdaEndpoint, cache: TrajectoryCache
) -> None:
    with left_behind(start_scaler) as (job, _):
        lambdas.oldest_invocation_s = "soon"
        with start_scaler():
            lambdas.wait_account_reads(2)
            lambdas.oldest_invocation_s = 0.0
            assert len(announced(cache, job, 5)) == 5


async def test_an_api_that_refuses_is_asked_ever_more_rarely(
    tmp_path: Path, cache: TrajectoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    enough, sleep = asyncio.Event(), asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            enough.set()
        await sleep(0)

    async def refuse() -> float:
        raise LambdaApiError("AccessDeniedException")

    invoker = ChanceInvoker(random.Random(0), cruel=False)
    spending = Spending(basis=basis(), clock="wall")
    launches = Launches(invoker, cache, Inline(), Metrics(), spending)
    lost = LostLaunches(
        book=Book(SqliteTable(tmp_path / "nitro.sqlite3"), now=lambda: 0.0),
        launches=launches,
        cache=cache,
        cache_thread=Inline(),
        oldest_invocation_s=refuse,
        now=time.time,
        function_timeout_s=60.0,
    )
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", pause)
        lost.watch(planned(0, 0))
        await enough.wait()
        await lost.close()
    assert pauses[:7] == [0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0]
    lost.book.close()


async def test_aws_is_not_asked_what_it_never_tells() -> None:
    function = LambdaFunction(Settings(auth="disabled"), Inline())
    assert await function.oldest_invocation_s() is None
    function.close()
