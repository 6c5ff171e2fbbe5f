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


@pytest.fixture
def tiny_job() -> JobSpec:
    return JobSpec.model_validate(TINY)


@pytest.fixture
def endless_job() -> JobSpec:
    """A job that only ends when it is stopped."""
    return JobSpec.model_validate({**TINY, "stop": {"max_rounds": 100_000}})
