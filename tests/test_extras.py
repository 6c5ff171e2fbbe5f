"""The extras of people's own machines are enough for their entry points, and bring no more.

Those of deployables are what images hold: `tests/compose/test_images.py` tries them there.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.requirements import read_project, requirements
from tests.compose import wheelhouse
from tests.compose.wheelhouse import ROOT

pytestmark = [
    pytest.mark.compose,
    pytest.mark.skipif(
        f"{sys.version_info.major}.{sys.version_info.minor}" != wheelhouse.PYTHON_OF_IMAGES,
        reason=f"packages are fetched for Python {wheelhouse.PYTHON_OF_IMAGES}",
    ),
]

ENTRY_MODULES = {
    "client": ("nitro.pool.actor_pool",),
    "cli": ("nitro.cli.main", "nitro.client.client", "nitro.cli.training.train"),
}
WITHOUT = {
    "client": ("torch", "gymnasium", "boto3", "fastapi", "rich"),
    "cli": ("torch", "gymnasium", "boto3"),
}


@pytest.fixture
def environment() -> Iterator[Path]:
    """A folder that is gone afterwards: environments are large."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def install(extra: str, folder: Path) -> Path:
    """Install one extra, at the versions of constraints.txt, into a fresh environment."""
    wanted = requirements(read_project(ROOT / "pyproject.toml"), extra)
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"),
        *("--no-compile", "--no-index", "--find-links", str(wheelhouse.packages())),
        *("--constraint", str(ROOT / "constraints.txt"), *wanted),
    )
    return python


def run(*command: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            "NITRO_CACHE_URL": "redis://127.0.0.1:1/0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("extra", ENTRY_MODULES)
def test_an_extra_is_enough_for_its_entry_point_and_brings_no_more(
    extra: str, environment: Path
) -> None:
    python = install(extra, environment)
    source = f"""
import importlib, importlib.util, json
for module in {ENTRY_MODULES[extra]!r}:
    importlib.import_module(module)
print(json.dumps([name for name in {WITHOUT[extra]!r} if importlib.util.find_spec(name)]))
"""
    assert json.loads(run(str(python), "-c", source)) == []
