"""SAC through the whole one-machine system: exact whatever dies, and it learns."""

import json
from pathlib import Path
from typing import Any

import pytest

from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import (
    assert_equal_rounds,
    final_weights,
    train,
    wait_finished,
    wait_until,
)

PENDULUM: dict[str, Any] = {
    "env_id": "Pendulum-v1",
    "algorithm": "sac",
    "preset": "standard",
    "scaling": {"policy": "fixed", "num_actors": 2},
    "actors": {"min": 2, "max": 2},
    "steps_per_actor": 64,
    "evaluation": {"every_rounds": 0},
}


def test_a_learner_killed_while_rounds_overlap_ends_with_the_same_weights_and_replay(
    client: NitroClient, system: LocalSystem, runs_dir: Path
) -> None:
    spec = JobSpec.model_validate(
        PENDULUM
        | {
            "steps_per_actor": 32,
            "hyperparameters": {
                "hidden_sizes": [16, 16],
                "minibatch_size": 32,
                # The first gradient step is owed just after whole rounds. In those of
                # `tests.campaign` it is owed within a round.
                "learning_starts": 128,
            },
            "seed": 3,
            "stop": {"max_rounds": 10},
        }
    )
    assert spec.open_rounds == 2
    whole = train(client, spec)
    job_id = client.submit(spec).job_id
    for rounds in (1, 5, 8):
        wait_until(client, job_id, lambda job, r=rounds: job.progress.rounds >= r, system)  # type: ignore[misc]
        system.kill("learner")
        system.restart("learner")
    resumed = wait_finished(client, job_id)
    assert (resumed.status, resumed.error) == ("succeeded", None)
    assert_equal_rounds(runs_dir, job_id, whole.job_id)
    assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)
    kept = [_segments(runs_dir, each) for each in (job_id, whole.job_id)]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 10


def _segments(runs_dir: Path, job_id: str) -> list[str]:
    newest = sorted((runs_dir / job_id / "checkpoints").iterdir())[-1]
    found = json.loads((newest / "state.json").read_text())["replay"]
    return [segment["sha256"] for segment in found]


def test_pendulum_is_learned(client: NitroClient) -> None:
    spec = JobSpec.model_validate(
        PENDULUM
        | {
            "hyperparameters": {
                "hidden_sizes": [64, 64],
                "minibatch_size": 128,
                "learning_rate": 1e-3,
                "learning_starts": 500,
            },
            "stop": {"max_rounds": 64, "target_return": -250},
            "evaluation": {"every_rounds": 8, "episodes": 8},
        }
    )
    job = train(client, spec)
    assert job.stop_reason == "target_return", (job.status, job.error, job.progress)


def test_discrete_actions_are_refused_with_what_suits_them(client: NitroClient) -> None:
    spec = JobSpec.model_validate(PENDULUM | {"env_id": "CartPole-v1"})
    with pytest.raises(CommandError, match="use ppo, impact, impala, ars or es"):
        client.admitted(client.submit(spec))


def test_a_policy_that_measures_is_refused() -> None:
    with pytest.raises(ValueError, match="which sac does not have: use fixed"):
        JobSpec.model_validate(PENDULUM | {"scaling": {"policy": "nitro"}})
