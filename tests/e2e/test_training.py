"""The one-machine system, every part real: it learns, repeats itself, and survives its learner."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.billing import JobCost
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.e2e.runs import (
    assert_equal_rounds,
    final_weights,
    timeless_rounds,
    tiny,
    train,
    wait_finished,
    wait_summed_up,
    wait_until,
)


@pytest.fixture(scope="module")
def job(client: NitroClient) -> Job:
    """A job like any other."""
    return train(client, tiny())


def test_a_job_trains_to_its_end_and_leaves_a_complete_run_folder(job: Job, runs_dir: Path) -> None:
    assert (job.status, job.stop_reason, job.error) == ("succeeded", "max_rounds", None)
    assert job.progress.rounds == 4
    folder = runs_dir / job.job_id
    assert json.loads((folder / "job.json").read_text())["status"] == "succeeded"
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["hyperparameters"]["num_epochs"] == 2
    lines = timeless_rounds(runs_dir, job.job_id)
    assert [line["plan"]["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[-1]["plan"]["stop"] == "max_rounds"
    # Evaluated in rounds 0 and 2 and after the last update, two episodes each.
    evaluated = [i for i, line in enumerate(lines) if line["evaluation"]]
    assert evaluated == [0, 2, 4]
    assert all(len(lines[i]["evaluation"]["returns"]) == 2 for i in evaluated)
    steps = sum(line["result"]["env_steps"] for line in lines[:-1])
    assert steps == 64 * sum(line["plan"]["num_actors"] for line in lines) == job.progress.env_steps
    for line in lines[:-1]:
        counts = line["result"]["trajectories"]
        assert counts == {
            "launched": line["plan"]["num_actors"],
            "used": line["plan"]["num_actors"],
            "late": 0,
            "duplicate": 0,
            "lost": 0,
        }
    scalars = EventAccumulator(str(folder))
    scalars.Reload()
    assert {"return/evaluation", "scaling/num_actors", "update/kl"} <= set(
        scalars.Tags()["scalars"]
    )


def test_the_bill_adds_up_and_is_in_the_folder(
    job: Job, client: NitroClient, runs_dir: Path
) -> None:
    cost = client.cost(job.job_id)
    summed_up = wait_summed_up(runs_dir / job.job_id)
    assert summed_up["settled_usd"] == cost.settled_usd
    on_disk = [
        json.loads(text)
        for text in (runs_dir / job.job_id / "ledger.jsonl").read_text().splitlines()
    ]
    assert on_disk == [line.model_dump(mode="json") for line in client.every_line(job.job_id)]
    total = sum(line["quantity"] * line["unit_price_usd"] for line in on_disk)
    assert np.isclose(total, cost.settled_usd, rtol=1e-9)
    assert cost.reserved_usd == 0.0
    assert 0 < cost.settled_usd < job.spec.stop.budget_usd
    assert isinstance(cost, JobCost)
    assert cost.projected_wall_s > 0


def test_equal_seeds_give_equal_records_and_equal_bytes(
    client: NitroClient, runs_dir: Path
) -> None:
    one, two = (train(client, tiny(seed=11)) for _ in range(2))
    other = train(client, tiny(seed=12))
    assert_equal_rounds(runs_dir, one.job_id, two.job_id)
    assert final_weights(runs_dir, one.job_id) == final_weights(runs_dir, two.job_id)
    assert final_weights(runs_dir, one.job_id)[2] != final_weights(runs_dir, other.job_id)[2]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "env_id": "Pendulum-v1",  # its episodes and their states last for several rounds
            "hyperparameters": {"hidden_sizes": [16], "recurrent": "gru", "recurrent_units": 8},
            "scaling": {"policy": "fixed", "num_actors": 2},
            "episodes": {"horizon": "limit"},
        },
    ],
    ids=["plain", "recurrent"],
)
def test_a_learner_killed_and_started_again_ends_with_the_same_weights(
    client: NitroClient, system: LocalSystem, runs_dir: Path, changes: dict[str, object]
) -> None:
    whole = train(client, tiny(**changes, seed=3, stop={"max_rounds": 10}))
    job_id = client.submit(whole.spec).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 7, system)
    system.kill("learner")
    system.restart("learner")
    resumed = wait_finished(client, job_id)
    assert resumed.status == "succeeded"
    assert_equal_rounds(runs_dir, job_id, whole.job_id)
    assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)


def test_episodes_go_on_in_later_rounds(client: NitroClient, runs_dir: Path) -> None:
    changes = {"env_id": "Pendulum-v1", "scaling": {"policy": "fixed", "num_actors": 3}}
    job = train(client, tiny(**changes, stop={"max_rounds": 9}, episodes={"horizon": "limit"}))
    results = [line["result"] for line in timeless_rounds(runs_dir, job.job_id)[:-1]]
    # Pendulum's episodes have 200 steps, and three fragments of 64 are 192.
    assert [len(result["episode_returns"]) for result in results] == [0, 0, 0, 3, 0, 0, 3, 0, 0]
    assert all(result["begun_anew"] == 0 for result in results)


def test_a_rounds_samples_do_not_depend_on_its_actors(client: NitroClient, runs_dir: Path) -> None:
    scaling = {"policy": "schedule", "num_actors": [2, 8, 3]}
    spec = {k: v for k, v in tiny().model_dump(mode="json").items() if k != "steps_per_actor"}
    changes = {"scaling": scaling, "samples_per_round": 240, "stop": {"max_rounds": 3}}
    job = train(client, JobSpec.model_validate({**spec, **changes}))
    lines = timeless_rounds(runs_dir, job.job_id)[:-1]
    assert [line["plan"]["num_actors"] for line in lines] == [2, 8, 3]
    assert [line["result"]["env_steps"] for line in lines] == [240, 240, 240]


def test_actors_share_samples_by_what_their_calls_take(client: NitroClient) -> None:
    spec = {k: v for k, v in tiny().model_dump(mode="json").items() if k != "steps_per_actor"}
    # So much patience with calls that as many actors come as may.
    scaling = {"policy": "auto", "steps_per_overhead": 0.001}
    changes = {"scaling": scaling, "samples_per_round": 240, "stop": {"max_rounds": 4}}
    job = train(client, JobSpec.model_validate({**spec, **changes}))
    plans = [record.plan for record in client.every_round(job.job_id)]
    assert plans[0].num_actors == job.spec.actors.min
    assert "a call takes" in plans[-1].reason
    assert plans[-1].num_actors == job.spec.actors.max


@pytest.mark.parametrize(("preset", "horizon"), [("paper", "fragment"), ("standard", "limit")])
def test_a_stopped_job_resumes_to_the_same_weights(
    preset: str, horizon: str | None, client: NitroClient, system: LocalSystem, runs_dir: Path
) -> None:
    episodes = {"horizon": horizon}
    spec = tiny(seed=5, preset=preset, stop={"max_rounds": 30}, episodes=episodes)
    whole = train(client, spec)
    for k, line in enumerate(timeless_rounds(runs_dir, whole.job_id)[:-1]):
        stats = line["result"]["stats"]
        assert stats["behaviour_log_prob_error"] < 1e-5
        decayed = 0.003 * (1 - k / 30) if preset == "standard" else 0.003
        assert stats["learning_rate"] == pytest.approx(decayed)
    job_id = client.submit(spec).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 3, system)
    client.stop(job_id)
    stopped = wait_finished(client, job_id)
    assert (stopped.status, stopped.stop_reason) == ("stopped", "user")
    assert stopped.progress.rounds < 30
    client.resume(job_id)
    resumed = wait_finished(client, job_id)
    assert (resumed.status, resumed.progress.rounds) == ("succeeded", 30)
    assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)


def test_checkpoints_are_plain_safetensors(job: Job, runs_dir: Path) -> None:
    _, state, _ = final_weights(runs_dir, job.job_id)
    arrays = load(state)
    assert arrays["network.policy.0.weight"].shape == (32, 4)
