"""One local system for the tests that only talk to it; each uses jobs of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
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

FAST_LEASES = {"scaler": {"NITRO_LEASE_TTL_S": "3", "NITRO_HEARTBEAT_EVERY_S": "0.3"}}
"""A dead learner's job is claimed again soon."""


@pytest.fixture(scope="package")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local") / "runs"


@pytest.fixture(scope="package")
def system(runs_dir: Path) -> Iterator[LocalSystem]:
    with LocalSystem(runs_dir, processes=1, environment=FAST_LEASES) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def client(system: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(system.api_url, system.token) as connected:
        yield connected


@pytest.fixture
def tiny_job() -> JobSpec:
    return JobSpec.model_validate(TINY)


@pytest.fixture
def endless_job() -> JobSpec:
    """A job that only ends when it is stopped."""
    return JobSpec.model_validate({**TINY, "stop": {"max_rounds": 100_000}})
