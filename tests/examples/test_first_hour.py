"""examples/first_hour/reach.py as a user runs it, and the commands that follow."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "first_hour" / "reach.py"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_learns_and_is_evaluated_from_the_command_line(tmp_path: Path) -> None:
    report, folder = run(tmp_path, str(EXAMPLE)).splitlines()
    assert report.startswith("own/reach.Reach: return ")
    mean = float(report.split()[2])
    assert mean > -15.0, "a random policy has some -100"
    evaluated = run(tmp_path, "-m", "nitro.cli.main", "evaluate", Path(folder).name)
    assert "own/reach.Reach" in evaluated
