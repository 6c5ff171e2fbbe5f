from collections.abc import Iterator
from pathlib import Path

import pytest

from nitro.local.system import LocalSystem


@pytest.fixture(scope="package")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local") / "runs"


@pytest.fixture(scope="package")
def system(runs_dir: Path) -> Iterator[LocalSystem]:
    with LocalSystem(runs_dir, processes=1) as running:
        running.wait_ready()
        yield running
