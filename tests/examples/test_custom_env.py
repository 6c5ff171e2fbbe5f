"""examples/custom_env as its README has it: installed, trained on, evaluated."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_env"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the package was installed into by pip, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    sources = folder / "sources"
    shutil.copytree(EXAMPLE, sources)
    target = folder / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(target), str(sources)], check=True, timeout=120)
    return target


def nitro(installed: Path, *arguments: str) -> str:
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", "nitro.cli.main", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_episodes_can_go_on_elsewhere(installed: Path) -> None:
    own = ("Example/PointMass-v0", "--environment-package", "point_mass", "--json")
    found = json.loads(nitro(installed, "check-env", *own, "--set", "env_kwargs.friction=0.3"))
    assert found["why_not"] is None
    assert found["num_left_at_ends"] > 0


def test_it_is_installed_trained_on_and_evaluated(installed: Path, tmp_path: Path) -> None:
    own = ("--environment-package", "point_mass", "--runs-dir", str(tmp_path), "--json")
    job = ("--preset", "standard", "--rounds", "2", "--actors", "2:2", "--steps-per-actor", "64")
    friction = ("--set", "env_kwargs.friction=0.3", "--set", "evaluation.every_rounds=0")
    trained = nitro(installed, "train", "Example/PointMass-v0", *own, *job, *friction)
    summary = json.loads(trained.splitlines()[-1])
    assert (summary["status"], summary["rounds"]) == ("succeeded", 2)
    record = json.loads((tmp_path / summary["job_id"] / "environment.json").read_text())
    assert record["environment"]["versions"]["point-mass"] == "0.1.0"
    evaluated = nitro(installed, "evaluate", summary["job_id"], *own, "--video")
    report = json.loads(evaluated)
    assert report["lengths"] == [60]
    assert Path(report["video"]).stat().st_size > 0
