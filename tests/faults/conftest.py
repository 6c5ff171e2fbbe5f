from collections.abc import Iterator
from pathlib import Path

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.faults.rig import Rig


@pytest.fixture
def broken(system: LocalSystem, client: NitroClient, runs_dir: Path) -> Iterator[Rig]:
    rig = Rig(system, client, runs_dir)
    yield rig
    rig.break_actors()
