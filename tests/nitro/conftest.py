"""Small jobs for the shared local system."""

import pytest

from shared.contracts.job_spec import JobSpec

TINY = {
    "env_id": "CartPole-v1",
    "hyperparameters": {"num_epochs": 1, "hidden_sizes": [8]},
    "steps_per_actor": 16,
    "actors": {"min": 1, "max": 2},
    "stop": {"max_rounds": 2},
    "evaluation": {"every_rounds": 1, "episodes": 1},
    "detector": {"num_samples": 16, "max_matvecs": 2},
}
"""A job of a second or two."""
NEVER_LEARNS = {
    "algorithm": "sac",
    "steps_per_actor": 16,
    "actors": {"min": 1, "max": 1},
    "stop": {"max_rounds": 1},
    "evaluation": {"every_rounds": 0},
}
"""A job that ends before its first gradient step, and is warned about."""


@pytest.fixture
def tiny_job() -> JobSpec:
    return JobSpec.model_validate(TINY)


@pytest.fixture
def endless_job() -> JobSpec:
    """A job that only ends when it is stopped."""
    return JobSpec.model_validate({**TINY, "stop": {"max_rounds": 100_000}})
