from collections.abc import Iterator
from pathlib import Path

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.e2e.runs import FAST_LEASES, TWO_CORES


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def system(runs_dir: Path) -> Iterator[LocalSystem]:
    with LocalSystem(runs_dir, environment=FAST_LEASES | TWO_CORES) as running:
        yield running


@pytest.fixture(scope="module")
def client(system: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(system.api_url, system.token) as connected:
        yield connected
