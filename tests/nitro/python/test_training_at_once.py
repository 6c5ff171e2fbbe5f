"""Several trainings at once in one folder: each has its own system, and any of them resumes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nitro

_NUM = 4


def _train(seed: int, runs_dir: Path) -> nitro.Run:
    return nitro.train(
        "CartPole-v1",
        rounds=1,
        seed=seed,
        samples_per_round=64,
        scaling="fixed:1",
        evaluation={"every_rounds": 0},
        processes=1,
        runs_dir=runs_dir,
    )


def test_four_train_at_once_in_one_folder_and_any_resumes(tmp_path: Path) -> None:
    runs_dir = tmp_path / "runs"
    with ThreadPoolExecutor(_NUM) as threads:
        runs = [*threads.map(lambda seed: _train(seed, runs_dir), range(_NUM))]
    assert [run.job.status for run in runs] == ["succeeded"] * _NUM
    assert [run.job.spec.seed for run in runs] == [*range(_NUM)]
    command = [sys.executable, "-m", "nitro.cli.main", "train", "--resume", runs[-1].job_id]
    typed = [*command, "--rounds", "2", "--processes", "1", "--json"]
    resumed = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert nitro.load(runs[-1].folder).job.progress.rounds == 2
