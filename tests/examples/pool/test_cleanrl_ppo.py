"""CleanRL's PPO with Nitro's actors learns, with another number of actors in every round."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_it_solves_cartpole_with_a_varying_number_of_actors(tmp_path: Path) -> None:
    script = ROOT / "examples" / "pool" / "cleanrl_ppo.py"
    arguments = ("--runs-dir", str(tmp_path / "runs"), "--target", "400")
    done = subprocess.run(
        (sys.executable, str(script), *arguments),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *rounds, last = done.stdout.splitlines()
    assert last.startswith("target_return: best evaluation 4"), last
    assert len({line.split()[2] for line in rounds}) > 2, rounds
