"""Actors on the learner's own cores through the real system: equal weights wherever they run."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from nitro.runs.reading import Run, read_run
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.e2e.runs import FAST_LEASES, final_weights, tiny, train, wait_finished, wait_until
from tests.nitro.process_table import alive, eventually, own_actors

ACTORS = {"NITRO_ENVIRONMENT_PACKAGES": "tests.e2e.slow_environments"}
APART = {"scaler": {**FAST_LEASES["scaler"], "NITRO_FUNCTIONS_SHARE_CORES": "false"}}
FUNCTIONS = {"lambda_duration", "lambda_requests", "pings"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def apart(runs: Path) -> Iterator[LocalSystem]:
    """A system whose functions are elsewhere, as on AWS."""
    with LocalSystem(runs, processes=2, environment=APART, actor_variables=ACTORS) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def remote(apart: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(apart.api_url, apart.token) as nitro:
        yield nitro


def placed(own: int, **changes: Any) -> JobSpec:
    return tiny(actors={"min": 2, "max": 8, "own": own}, **changes)


def slow(own: int) -> JobSpec:
    """A job whose actors are worth the price of functions, in numbers that change."""
    return placed(
        own,
        env_id="SlowCartPole-v0",
        scaling={"policy": "schedule", "num_actors": [4, 2, 6, 3, 5]},
        steps_per_actor=16,
        stop={"max_rounds": 5},
        evaluation={"every_rounds": 0},
    )


@pytest.fixture(scope="module")
def on_functions(remote: NitroClient) -> Job:
    return train(remote, slow(0))


def finished(client: NitroClient, runs: Path, job_id: str) -> Run:
    job = wait_finished(client, job_id)
    assert job.status == "succeeded", job.error
    return read_run(runs / job_id)


def test_weights_are_equal_on_own_cores_which_have_no_line_in_the_bill(
    client: NitroClient, runs_dir: Path
) -> None:
    functions, own = train(client, placed(0)), train(client, placed(2))
    run = finished(client, runs_dir, own.job_id)
    assert final_weights(runs_dir, own.job_id) == final_weights(runs_dir, functions.job_id)
    plans = [line.plan for line in run.rounds]
    assert all(plan.own == plan.num_actors for plan in plans)
    assert all(plan.own_evaluations == plan.num_evaluations for plan in plans)
    results = [line.result for line in run.rounds if line.result]
    assert all(r.own and r.own.rollouts == r.trajectories.launched for r in results)
    items, theirs = (client.cost(job.job_id).by_item for job in (own, functions))
    assert items["learner"] > 0
    assert not FUNCTIONS & items.keys()
    assert "lambda_duration" in theirs


def test_weights_are_equal_where_places_are_mixed_and_own_actors_are_killed(
    remote: NitroClient, apart: LocalSystem, runs: Path, on_functions: Job
) -> None:
    job = remote.admitted(remote.submit(slow(2)))
    wait_until(remote, job.job_id, lambda job: job.progress.rounds >= 1, apart)
    killed = own_actors(apart.pid("learner"))
    assert len(killed) == 2
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run = finished(remote, runs, job.job_id)
    mixed = [line.plan for line in run.rounds if 0 < line.plan.own < line.plan.num_actors]
    assert len({(plan.own, plan.num_actors) for plan in mixed}) > 1
    assert final_weights(runs, job.job_id) == final_weights(runs, on_functions.job_id)


def test_a_learner_killed_with_its_actors_leaves_none_and_resumes_to_equal_weights(
    remote: NitroClient, apart: LocalSystem, runs: Path, on_functions: Job
) -> None:
    job = remote.admitted(remote.submit(slow(2)))
    for rounds in (1, 3):
        _end_learner(remote, apart, job.job_id, after=rounds)
    finished(remote, runs, job.job_id)
    assert final_weights(runs, job.job_id) == final_weights(runs, on_functions.job_id)


@pytest.mark.parametrize(
    "changes", [{"algorithm": "impact"}, {"algorithm": "impala"}, {"learner": "functions"}]
)
def test_own_actors_serve_every_kind_of_learning(
    remote: NitroClient, runs: Path, changes: dict[str, Any]
) -> None:
    env_id = "Pendulum-v1" if "learner" in changes else "CartPole-v1"
    job = train(remote, placed(2, env_id=env_id, hyperparameters={}, **changes))
    run = finished(remote, runs, job.job_id)
    results = [line.result for line in run.rounds if line.result]
    assert sum(r.own.rollouts for r in results if r.own) > 0
    assert all(r.own is None or not r.own.lost for r in results)
    assert all(r.trajectories.lost == 0 for r in results)


def _end_learner(remote: NitroClient, apart: LocalSystem, job_id: str, *, after: int) -> None:
    """Kill the learner alone, see its actors gone, and start it again."""
    wait_until(remote, job_id, lambda job: job.progress.rounds >= after, apart)
    left = own_actors(apart.pid("learner"))
    assert left
    os.kill(apart.pid("learner"), signal.SIGKILL)
    eventually(lambda: not any(map(alive, left)))
    apart.kill("learner")
    apart.restart("learner")
