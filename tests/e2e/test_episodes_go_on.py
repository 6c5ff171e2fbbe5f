"""Episodes that go on by repeating their actions, through the real system."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import (
    FAST_LEASES,
    final_weights,
    tiny,
    train,
    wait_finished,
    wait_until,
)

ACTORS = {
    "NITRO_ENVIRONMENT_PACKAGES": "tests.e2e.replayed_environments",
    "NITRO_KEPT_ENVIRONMENTS": "1",  # of several streams' next to none stands where it is wanted
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def system(runs: Path) -> Iterator[LocalSystem]:
    with LocalSystem(runs, processes=2, environment=FAST_LEASES, actor_variables=ACTORS) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def client(system: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(system.api_url, system.token) as nitro:
        yield nitro


def pendulum(env_id: str, **changes: Any) -> JobSpec:
    """Cut at 90 steps each episode begins with a seed, whichever way it goes on."""
    fields = {
        "env_id": env_id,
        "actors": {"min": 3, "max": 3},
        "scaling": {"policy": "fixed", "num_actors": 3},
        "episodes": {"horizon": 90},
        "stop": {"max_rounds": 6},
        **changes,
    }
    return tiny(**fields)


def test_replays_and_states_train_equal_weights_whatever_is_killed(
    client: NitroClient, system: LocalSystem, runs: Path
) -> None:
    saved = train(client, pendulum("Pendulum-v1"))
    assert saved.episodes_go_on == "state"
    whole = train(client, pendulum("Replayed/OwnPendulum-v0"))
    assert (whole.episodes_go_on, whole.progress.lost_replays) == ("replay", 0)
    assert final_weights(runs, whole.job_id) == final_weights(runs, saved.job_id)
    killed = client.submit(pendulum("Replayed/OwnPendulum-v0")).job_id
    for rounds, name in ((2, "learner"), (4, "emulator")):
        wait_until(client, killed, lambda job, n=rounds: job.progress.rounds >= n, system)  # type: ignore[misc]
        system.kill(name)
        system.restart(name)
    assert wait_finished(client, killed).status == "succeeded"
    assert final_weights(runs, killed) == final_weights(runs, saved.job_id)


def test_an_environment_that_is_not_deterministic_is_found_out_and_plays_whole_episodes(
    client: NitroClient, runs: Path
) -> None:
    fields: dict[str, Any] = {
        "steps_per_actor": JobSpec().steps_per_actor,
        "samples_per_round": 600,
        "actors": {"min": 10, "max": 10},
        "scaling": {"policy": "fixed", "num_actors": 10},
        "episodes": {"horizon": "limit", "resize": True},
        "stop": {"max_rounds": 5},
    }
    job = train(client, pendulum("Replayed/LatePendulum-v0", **fields))
    assert (job.status, job.episodes_go_on) == ("succeeded", "no")
    lines = read_run(runs / job.job_id).rounds
    # Left after 60 steps and after 120 they go on, after 180 none does.
    lost = [line.result.lost_replays for line in lines if line.result]
    assert lost[3] >= 3
    assert lost == [0, 0, 0, job.progress.lost_replays, 0]
    assert [line.plan.num_actors for line in lines if line.result] == [10, 10, 10, 10, 3]
    assert [line.result.env_steps for line in lines if line.result] == [600] * 5
