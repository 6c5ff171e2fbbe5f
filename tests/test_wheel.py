"""The wheel trains in a clean environment, and its policy acts where NumPy alone is installed.

Each Python that this machine has is tried. `PIP_ARGS` may name an index of small builds of torch.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.documents import ROOT

pytestmark = pytest.mark.wheel

VERSIONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", ".", ROOT], folder)
    (built,) = folder.glob("nitro_rl-*.whl")
    return built


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command that can find nothing of the clone, and return what it says."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME") or name.startswith("PIP_")
    }
    done = subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interpreter(version: str) -> str:
    """Return a Python of a version, or skip the test and say that there is none."""
    for name in (f"python{version}", sys.executable):
        found = shutil.which(name)
        asked = [found or name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False) if found else None
        if found and told and told.stdout.strip() == version:
            return found
    pytest.skip(f"no Python {version} on this machine")


def environment(folder: Path, python: str, *requirements: str) -> Path:
    """Return the folder of a new environment's programs."""
    run([python, "-m", "venv", "environment"], folder)
    programs = folder / "environment" / "bin"
    options = shlex.split(os.environ.get("PIP_ARGS", ""))
    constraint = ("--constraint", str(ROOT / "constraints.txt"))
    pip = ["-m", "pip", "install", "--quiet", "--no-compile", *options, *constraint]
    run([programs / "python", *pip, *requirements], folder)
    return programs


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_trains_and_its_policy_needs_numpy_alone(
    wheel: Path, version: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    programs = environment(tmp_path, python, f"{wheel}[local]")
    nitro = programs / "nitro"
    run([nitro, "train", "CartPole-v1", "--rounds", "2"], tmp_path)
    (job,) = (path.name for path in (tmp_path / "runs").iterdir() if path.name[0] != ".")
    run([nitro, "export", job, "--out", "policy"], tmp_path)

    robot = tmp_path / "robot"
    robot.mkdir()
    for name in ("policy.py", "policy.safetensors"):
        shutil.copy(tmp_path / "policy" / name, robot / name)
    alone = environment(robot, python, "numpy")
    assert run([alone / "python", "policy.py", "policy.safetensors"], robot).strip() in ("0", "1")
    listed = run([alone / "python", "-m", "pip", "list", "--format=freeze"], robot)
    assert {line.partition("==")[0] for line in listed.split()} <= {"numpy", "pip", "setuptools"}


def test_every_version_that_is_tried_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for version in VERSIONS:
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]
