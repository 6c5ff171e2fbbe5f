"""Environments of one's own through the real system: those that work and those that do not."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from nitro.client.client import NitroClient
from nitro.client.errors import JobRefusedError
from nitro.local.system import LocalSystem
from nitro.runs.export import export_run
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundResult
from shared.trajectory.seeds import actor_seed
from tests.e2e import odd_environments
from tests.e2e.odd_environments import EPISODE
from tests.e2e.runs import FAST_LEASES, final_weights, tiny, train

ACTORS = {
    "NITRO_ENVIRONMENT_PACKAGES": "tests.e2e.odd_environments",
    "NITRO_STEP_TIMEOUT_S": "1",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What environments leave there, others find."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def system(runs: Path, notes: Path) -> Iterator[LocalSystem]:
    variables = ACTORS | {"ODD_NOTES": str(notes)}
    with LocalSystem(runs, environment=FAST_LEASES, actor_variables=variables) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def client(system: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(system.api_url, system.token) as nitro:
        yield nitro


def odd(client: NitroClient, env_id: str = "Odd/Odd-v0", **changes: Any) -> Job:
    fields = {
        "env_id": env_id,
        "actors": {"min": 2, "max": 2},
        "stop": {"max_rounds": 2},
        "evaluation": {"every_rounds": 0},
        **changes,
    }
    return train(client, tiny(**fields))


def test_several_choices_at_once_are_learned(client: NitroClient, runs: Path) -> None:
    job = odd(
        client,
        steps_per_actor=256,
        envs_per_actor=2,
        hyperparameters={"learning_rate": 0.01, "minibatch_size": 64, "num_epochs": 8},
        stop={"max_rounds": 8},
    )
    assert (job.status, job.error) == ("succeeded", None)
    returns = [fmean(result.episode_returns) for result in results(runs, job)]
    assert returns[0] < 1.1 * EPISODE  # 1/2 + 1/3 per step by chance
    assert returns[-1] > 1.3 * EPISODE  # of 2 per step


@pytest.mark.parametrize("own", [0, 2])
def test_twenty_random_faults_of_a_searchs_actors_change_no_bit(
    client: NitroClient, runs: Path, notes: Path, own: int
) -> None:
    rng, seed, directions = np.random.default_rng(own), 3 + own, 8
    faults = [
        actor_seed(
            seed, mode="search", round_index=index, actor_index=int(rng.integers(directions))
        )
        % 10**6
        for index in range(20)
    ]
    job: dict[str, Any] = {
        "env_id": "Odd/Faulty-v0",
        "algorithm": "ars",
        "seed": seed,
        "steps_per_actor": 256,
        "hyperparameters": {"directions": directions, "iterations": 5},
        "detector": {},
        # As many as run at once here: a call is tried again at once then.
        "scaling": {"policy": "fixed", "num_actors": 2},
        "actors": {"min": 2, "max": 4, "own": own},
        "episodes": {"horizon": EPISODE},
        "stop": {"max_rounds": 4},
        "evaluation": {"every_rounds": 0},
    }
    whole = train(client, JobSpec.model_validate(job))
    job["env_kwargs"] = {"faults": ",".join(map(str, faults))}
    faulty = train(client, JobSpec.model_validate(job))
    assert (faulty.status, faulty.error) == ("succeeded", None)
    assert all((notes / f"{fault}").exists() for fault in faults)
    assert final_weights(runs, faulty.job_id) == final_weights(runs, whole.job_id)


def test_parts_are_a_vector_and_a_wrapper_leaves_some_out(client: NitroClient, runs: Path) -> None:
    with pytest.raises(
        JobRefusedError, match=r"wrappers\.0\.name: 'Flatten' is no registered wrapper; did"
    ):
        odd(client, "Odd/TwoParts-v0", wrappers=[{"name": "Flatten"}])
    job = odd(client, "Odd/TwoParts-v0")
    assert (job.status, job.error) == ("succeeded", None)
    assert job.described_environment.observation.shape == (5,)


@pytest.mark.parametrize("algorithm", ["ppo", "impact", "impala"])
def test_actions_that_a_mask_forbids_are_never_taken(
    client: NitroClient, runs: Path, tmp_path: Path, algorithm: str
) -> None:
    job = odd(
        client,
        "Odd/Forbidding-v0",
        algorithm=algorithm,
        hyperparameters={},
        wrappers=[{"name": "ActionMask"}],
        evaluation={"every_rounds": 1, "episodes": 2},
    )
    assert (job.status, job.error) == ("succeeded", None)
    assert job.described_environment.mask_size == 4
    lines = results(runs, job)
    assert {each for line in lines for each in line.episode_returns} == {float(EPISODE)}
    assert {each for line in lines if line.evaluation for each in line.evaluation.returns} == {
        float(EPISODE)
    }
    assert export_run(runs / job.job_id, tmp_path / "out").largest_difference == 0


def test_pictures_are_seen_with_their_channels_first(
    client: NitroClient, runs: Path, tmp_path: Path
) -> None:
    job = odd(client, "Odd/Picture-v0", evaluation={"every_rounds": 1, "episodes": 1})
    assert (job.status, job.error) == ("succeeded", None)
    observation = job.described_environment.observation
    assert (observation.shape, observation.dtype) == ((3, 40, 48), "uint8")
    assert export_run(runs / job.job_id, tmp_path / "out").largest_difference == 0


@pytest.mark.parametrize(
    ("algorithm", "dtype", "size"),
    [("ppo", "float32", 7062), ("impact", "uint8", 7059), ("impala", "float32", 7062)],
)
def test_pictures_beside_other_parts_are_learned_from(
    client: NitroClient, runs: Path, tmp_path: Path, algorithm: str, dtype: str, size: int
) -> None:
    job = odd(
        client,
        "Odd/Eyes-v0",
        algorithm=algorithm,
        hyperparameters={"observation_normalisation": algorithm == "ppo"},
        evaluation={"every_rounds": 1, "episodes": 1},
        wrappers=[{"name": "LeaveOut", "kwargs": {"parts": "state"}}] * (dtype == "uint8"),
    )
    assert (job.status, job.error) == ("succeeded", None)
    observation = job.described_environment.observation
    assert observation.images == ((3, 40, 48), (1, 36, 36))
    assert (observation.shape, observation.dtype) == ((size,), dtype)
    assert export_run(runs / job.job_id, tmp_path / "out").largest_difference == 0


def test_episodes_that_are_not_finite_are_dropped_and_counted(
    client: NitroClient, system: LocalSystem, runs: Path
) -> None:
    job = odd(client, env_kwargs={"trouble": "nan", "after": 1})
    assert (job.status, job.error) == ("succeeded", None)
    dropped = [result.dropped_episodes for result in results(runs, job)]
    assert sum(dropped) > 0
    for result in results(runs, job):
        assert result.trajectories.used == 2
        assert result.env_steps == 2 * 64
    assert "dropped episodes with a non-finite number" in log(system)


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("always_nan", ["Odd/Odd-v0: reward is not finite at step"]),
        ("shape", ["has shape (4,) and type float32, but its space says Box(0.0"]),
        ("crash", ["signal: aborted"]),
    ],
)
def test_what_persists_fails_the_job_and_is_named(
    client: NitroClient, trouble: str, says: list[str]
) -> None:
    job = odd(client, env_kwargs={"trouble": trouble})
    assert job.status == "failed"
    for words in (*says, "Odd/Odd-v0"):
        assert words in str(job.error)


@pytest.mark.parametrize(
    ("trouble", "line"),
    [
        ("raise", 'raise ZeroDivisionError("friction is 0")'),
        ("hang", "time.sleep(3600)"),
    ],
)
def test_an_environment_that_fails_every_actor_fails_the_job_at_once_with_its_file_and_line(
    client: NitroClient, trouble: str, line: str
) -> None:
    job = odd(client, env_kwargs={"trouble": trouble}, actors={"min": 8, "max": 8})
    assert (job.status, job.fails_again) == ("failed", True)
    told = str(job.error).splitlines()
    assert told[0].startswith("Odd/Odd-v0")  # the cause comes first
    assert f'  File "{odd_environments.__file__}", line' in str(job.error)
    assert any(text.strip() == line for text in told)
    (record,) = client.every_round(job.job_id)
    assert record.plan.attempt == 0  # it was not reopened
    assert record.trouble.retried == 0
    assert record.trouble.lost >= 2
    assert record.trouble.latest.startswith("Odd/Odd-v0")


def test_what_shows_at_the_first_step_is_refused_at_submit(client: NitroClient) -> None:
    with pytest.raises(JobRefusedError, match="env_id: 'Odd/Odd-v0' failed when its first step"):
        odd(client, env_kwargs={"trouble": "shape", "after": 0})
    with pytest.raises(JobRefusedError, match="env_id: .*Odd/Odd-v0: no step or reset has ended"):
        odd(client, env_kwargs={"trouble": "hang", "after": 0})
    with pytest.raises(
        JobRefusedError, match="env_id: 'Odd/Odd-v0' ended the actor's process each time"
    ):
        odd(client, env_kwargs={"trouble": "crash", "after": 0})


def results(runs: Path, job: Job) -> list[RoundResult]:
    return [line.result for line in read_run(runs / job.job_id).rounds if line.result]


def log(system: LocalSystem) -> str:
    return (system.logs / "learner.log").read_text()
