"""A job's specification becomes the algorithm that trains it."""

import torch

from services.learner.algorithms.base import build_algorithm
from shared.job_spec import JobSpec
from shared.jobs import Job
from tests.services.learner.trajectories import CONTINUOUS


def job(**spec: object) -> Job:
    return Job(
        job_id="job",
        spec=JobSpec.model_validate(spec),
        environment=CONTINUOUS,
        status="running",
        created_at=0.0,
    )


def test_overrides_reach_the_network_and_the_seed_decides_the_weights() -> None:
    cpu = torch.device("cpu")
    overrides = {"hidden_sizes": (4,), "log_std": "free"}
    arrays, metadata = build_algorithm(
        job(hyperparameters=overrides, seed=3), device=cpu
    ).policy_payload()
    assert arrays["policy.0.weight"].shape == (4, 5)
    assert metadata["log_std"] == "free"
    again, _ = build_algorithm(job(hyperparameters=overrides, seed=3), device=cpu).policy_payload()
    other, _ = build_algorithm(job(hyperparameters=overrides, seed=4), device=cpu).policy_payload()
    assert arrays["policy.0.weight"].tobytes() == again["policy.0.weight"].tobytes()
    assert arrays["policy.0.weight"].tobytes() != other["policy.0.weight"].tobytes()
