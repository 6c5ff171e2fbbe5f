"""examples/python_api.py as a user runs it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python_api.py"


def test_it_trains_evaluates_draws_and_acts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    evaluated, picture, played = done.stdout.splitlines()
    assert evaluated.startswith("CartPole-v1: return ")
    assert Path(picture).is_file()
    assert played.startswith("an episode of ")
    assert not done.stderr  # quiet where nobody watches
