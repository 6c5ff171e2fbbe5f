"""TorchRL's PPO with Nitro's actors learns, in TorchRL's own interpreter."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.integrations
ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-torchrl" / "bin" / "python"


def test_it_solves_cartpole(tmp_path: Path) -> None:
    script = ROOT / "examples" / "pool" / "torchrl_ppo.py"
    done = subprocess.run(
        (str(PYTHON), str(script), "--runs-dir", str(tmp_path / "runs"), "--target", "400"),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said, _, best = done.stdout.splitlines()[-1].rpartition(" ")
    assert said == "target_return: best evaluation"
    assert float(best) >= 400
