"""An off-policy algorithm in rounds one after the other resumes to the last bit."""

from pathlib import Path

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


def test_a_learner_killed_and_started_again_ends_with_the_same_weights(
    client: NitroClient, system: LocalSystem, runs_dir: Path
) -> None:
    spec = tiny(
        algorithm="impact",
        preset="standard",
        hyperparameters={
            "hidden_sizes": [32, 32],
            "train_batch_size": 192,
            "minibatch_size": 64,
            "learning_rate": 0.003,
            "num_epochs": 2,
        },
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
