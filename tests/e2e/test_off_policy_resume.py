"""Off-policy algorithms in rounds one after the other repeat and resume to the last bit."""

from pathlib import Path
from typing import Any

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.e2e.runs import (
    assert_equal_rounds,
    final_weights,
    tiny,
    train,
    wait_finished,
    wait_until,
)

SMALL: dict[str, Any] = {
    "hidden_sizes": [32, 32],
    "train_batch_size": 192,
    "minibatch_size": 64,
    "learning_rate": 0.003,
}


@pytest.mark.parametrize(("algorithm", "own"), [("impact", {"num_epochs": 2}), ("impala", {})])
def test_a_learner_killed_and_started_again_ends_with_the_same_weights(
    client: NitroClient, system: LocalSystem, runs_dir: Path, algorithm: str, own: dict[str, int]
) -> None:
    spec = tiny(
        algorithm=algorithm,
        preset="standard",
        hyperparameters=SMALL | own,
        rounds_in_flight=1,
        seed=3,
        stop={"max_rounds": 7},
    )
    whole = train(client, spec)
    job_id = client.submit(spec).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 3, system)
    system.kill("learner")
    system.restart("learner")
    resumed = wait_finished(client, job_id)
    assert (resumed.status, resumed.error) == ("succeeded", None)
    assert_equal_rounds(runs_dir, job_id, whole.job_id)
    assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)
