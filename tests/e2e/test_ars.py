"""ARS through the whole one-machine system: exact whatever dies, and it learns."""

from pathlib import Path
from typing import Any

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import final_weights, train, wait_finished, wait_until

CARTPOLE: dict[str, Any] = {
    "env_id": "CartPole-v1",
    "algorithm": "ars",
    "preset": "standard",
    "scaling": {"policy": "fixed", "num_actors": 4},
    "actors": {"min": 2, "max": 8},
    "evaluation": {"every_rounds": 0},
}


def test_a_job_with_other_actors_elsewhere_ends_with_the_same_weights(
    client: NitroClient, runs_dir: Path
) -> None:
    rounds = {
        "hyperparameters": {"directions": 16, "iterations": 2},
        "stop": {"max_rounds": 10},
    }
    spec = JobSpec.model_validate(CARTPOLE | rounds | {"seed": 3})
    whole = train(client, spec)
    fewer = spec.model_copy(
        update={
            "scaling": spec.scaling.model_copy(update={"num_actors": 3}),
            "actors": spec.actors.model_copy(update={"own": 0}),
        }
    )
    other = train(client, fewer)
    assert final_weights(runs_dir, other.job_id) == final_weights(runs_dir, whole.job_id)


def test_cartpole_is_learned_and_ends_by_steps(client: NitroClient) -> None:
    spec = JobSpec.model_validate(
        CARTPOLE
        | {
            "hyperparameters": {"directions": 20},
            "stop": {"max_rounds": 1000, "max_env_steps": 60_000},
            "evaluation": {"every_rounds": 1000, "episodes": 4},
        }
    )
    job = train(client, spec)
    assert job.stop_reason == "max_env_steps", (job.status, job.error, job.progress)
    assert job.progress.env_steps >= 60_000
    assert job.progress.last_return is not None
    assert job.progress.last_return > 200
    resumed = client.resume(job.job_id, max_env_steps=job.progress.env_steps + 1)
    assert resumed.stop_reason is None
    longer = wait_finished(client, job.job_id)
    assert (longer.progress.rounds, longer.stop_reason) == (
        job.progress.rounds + 1,
        "max_env_steps",
    )


def test_es_learns_cartpole_and_resumes_with_the_same_weights(
    client: NitroClient, system: LocalSystem, runs_dir: Path
) -> None:
    spec = JobSpec.model_validate(
        CARTPOLE
        | {
            "algorithm": "es",
            "hyperparameters": {"directions": 20, "iterations": 1},
            "stop": {"max_rounds": 8},
            "evaluation": {"every_rounds": 8, "episodes": 4},
        }
    )
    whole = train(client, spec)
    assert whole.progress.last_return is not None
    assert whole.progress.last_return > 300
    job_id = client.submit(spec).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 2, system)
    system.kill("learner")
    system.restart("learner")
    assert wait_finished(client, job_id).status == "succeeded"
    assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"samples_per_round": 64}, r"samples_per_round \(64\) is not for ars"),
        ({"scaling": {"policy": "nitro"}}, "ars does not have: use fixed"),
        ({"learner": "gpu"}, r"learner \(gpu\) is not for ars"),
        ({"learner": "external"}, r"learner \(external\) is not for ars"),
        ({"episodes": {"horizon": "fragment"}}, r"episodes.horizon \(fragment\) is not for ars"),
        ({"episodes": {"replay": 0.5}}, r"episodes.replay \(0.5\) is not for ars: its episodes"),
        ({"episodes": {"resize": True}}, r"episodes.resize \(True\) is not for ars"),
        ({"rounds_in_flight": 3}, r"rounds_in_flight \(3\) is not for ars: a round perturbs"),
        ({"learner_functions": {"num": 8}}, r"learner_functions \({'num': 8}\) is not for ars"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        JobSpec.model_validate(CARTPOLE | fields)
