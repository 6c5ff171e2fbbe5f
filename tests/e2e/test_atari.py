"""Games through the whole system: `nitro train ALE/SpaceInvaders-v5 --rounds 2`, and again."""

import json
from pathlib import Path
from typing import Any

from nitro.client.client import NitroClient
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import final_weights, timeless_rounds, train

FAST = {"num_epochs": 1}


def small(env_id: str, **changes: Any) -> JobSpec:
    body = {
        "env_id": env_id,
        "steps_per_actor": 32,
        "actors": {"min": 2, "max": 2},
        "scaling": {"policy": "fixed", "num_actors": 2},
        "hyperparameters": FAST,
        "stop": {"max_rounds": 2},
        "evaluation": {"every_rounds": 0},
        "detector": {"num_samples": 8, "max_matvecs": 4},
    }
    return JobSpec.model_validate({**body, **changes})


def test_a_game_trains_and_equal_seeds_give_equal_bits(client: NitroClient, runs_dir: Path) -> None:
    jobs = [train(client, small("ALE/SpaceInvaders-v5")) for _ in range(2)]
    assert [(job.status, job.error) for job in jobs] == [("succeeded", None)] * 2
    weights = {final_weights(runs_dir, job.job_id) for job in jobs}
    assert len(weights) == 1
    for line in timeless_rounds(runs_dir, jobs[0].job_id)[:-1]:
        assert line["result"]["env_steps"] == 64
        assert line["result"]["stats"]["behaviour_log_prob_error"] < 1e-4
        assert line["curvature"]["lambda_max"] > line["curvature"]["lambda_min"]
    record = json.loads((runs_dir / jobs[0].job_id / "environment.json").read_text())
    assert record["hyperparameters"]["image_network"] == "paper_cnn"
    assert (
        "frame skip: 4, in one place (the game itself skips none)"
        in (record["environment"]["preprocessing"])
    )


def test_evaluation_reports_raw_scores_of_whole_games(client: NitroClient, runs_dir: Path) -> None:
    job = train(
        client,
        small(
            "QbertNoFrameskip-v4",
            preset="standard",
            env_kwargs={"frame_stack": 3},
            stop={"max_rounds": 1},
            evaluation={"every_rounds": 1, "episodes": 2},
        ),
    )
    assert job.status == "succeeded"
    evaluation = timeless_rounds(runs_dir, job.job_id)[0]["evaluation"]
    assert len(evaluation["returns"]) == 2
    assert all(score % 25 == 0 for score in evaluation["returns"])  # a cube is worth 25
    assert min(evaluation["lengths"]) > 100  # four lives
    record = json.loads((runs_dir / job.job_id / "environment.json").read_text())
    assert record["hyperparameters"]["image_network"] == "nature_cnn"
    assert record["hyperparameters"]["minibatch_size"] == 256
