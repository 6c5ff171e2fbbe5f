"""`nitro sweep` as it is typed: killed, stopped, resumed, and shown."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nitro.cli.main import app
from nitro.errors import EXIT_INTERRUPTED, EXIT_USAGE
from nitro.sweeps.folder import SweepFolder
from nitro.sweeps.rows import Row
from tests.nitro.conftest import TINY

SETS = [
    word
    for path, value in {
        "preset": "paper",
        "hyperparameters": {"num_epochs": 1, "hidden_sizes": [8]},
        **{name: TINY[name] for name in ("steps_per_actor", "actors", "evaluation", "detector")},
        "stop.max_rounds": 20,
    }.items()
    for word in ("--set", f"{path}={json.dumps(value)}")
]


def typed(runs_dir: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "nitro.cli.main", "sweep", *words, "--runs-dir", str(runs_dir)]


def begun(runs_dir: Path, *words: str) -> subprocess.Popen[bytes]:
    """Begin a sweep of four jobs, in a process of its own."""
    command = typed(runs_dir, "CartPole-v1", "--seeds", "2", "--name", "four", *SETS, *words)
    varied = ["--vary", "hyperparameters.learning_rate=1e-3,1e-4"]
    with (runs_dir.parent / "log").open("ab") as log:
        return subprocess.Popen([*command, *varied], stdout=log, stderr=log, cwd=runs_dir.parent)


def resumed(runs_dir: Path) -> int:
    with (runs_dir.parent / "log").open("ab") as log:
        return subprocess.run(
            typed(runs_dir, "resume", "four"), stdout=log, stderr=log, timeout=300
        ).returncode


def rows_of(runs_dir: Path) -> list[Row]:
    return SweepFolder(runs_dir, "four").rows()


def curves(rows: Sequence[Row]) -> list[object]:
    return [row.outcome and (row.key, row.outcome.curve, row.outcome.env_steps) for row in rows]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300.0
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def some_have_ended(runs_dir: Path) -> bool:
    folder = SweepFolder(runs_dir, "four")
    return folder.exists() and any(row.status == "finished" for row in folder.rows())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nobody disturbed."""
    runs_dir = tmp_path_factory.mktemp("whole") / "runs"
    assert begun(runs_dir).wait(300) == 0, (runs_dir.parent / "log").read_text()
    return runs_dir


def test_a_killed_sweep_goes_on_to_equal_numbers(whole: Path, tmp_path: Path) -> None:
    runs_dir = tmp_path / "runs"
    process = begun(runs_dir)
    wait_until(partial(some_have_ended, runs_dir))
    process.kill()
    process.wait()
    assert any(row.status != "finished" for row in rows_of(runs_dir))
    assert resumed(runs_dir) == 0, (tmp_path / "log").read_text()
    assert curves(rows_of(runs_dir)) == curves(rows_of(whole))


def test_ctrl_c_loses_nothing_and_says_how_to_go_on(whole: Path, tmp_path: Path) -> None:
    runs_dir = tmp_path / "runs"
    process = begun(runs_dir)
    wait_until(partial(some_have_ended, runs_dir))
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(300) == EXIT_INTERRUPTED
    assert "sweep resume four" in (tmp_path / "log").read_text()
    assert resumed(runs_dir) == 0
    assert curves(rows_of(runs_dir)) == curves(rows_of(whole))


def test_a_finished_sweep_has_its_tables_and_picture_and_is_not_trained_again(
    whole: Path,
) -> None:
    folder = whole / "sweeps" / "four"
    for name in ("table.md", "table.tex", "table.csv"):
        assert "CartPole-v1" in (folder / name).read_text()
    assert (folder / "sweep.png").stat().st_size > 10_000
    before = rows_of(whole)
    assert begun(whole).wait(300) == 0
    assert rows_of(whole) == before


def test_a_sweep_is_shown_in_each_form(whole: Path) -> None:
    def shown(*words: str) -> str:
        result = CliRunner().invoke(app, ["sweep", *words, "--runs-dir", str(whole)])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "learning_rate=0.001" in shown("show", "four")
    assert shown("show", "fou", "--format", "csv").startswith("environment,setting,")
    assert len(json.loads(shown("show", "four", "--json"))["groups"]) == 2
    assert "4 of 4 done" in shown("list")
    assert "is not running" in shown("stop", "four")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "2"], "ENV: name an environment"),
        (["show", "nothing"], "no sweep 'nothing'"),
        (["Nowhere-v0"], "Nowhere"),
        (["CartPole-v1", "--parallel", "many"], "--parallel: must be auto"),
        (["CartPole-v1", "--api-url", "https://example.com"], "--budget-usd: an API costs money"),
        (["CartPole-v1", "--vary", "preset"], "--vary: must look like"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["sweep", *words, "--runs-dir", str(tmp_path / "runs")])
    assert result.exit_code == EXIT_USAGE, result.output
    assert message in result.stderr
    if words == ["Nowhere-v0"]:
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_settings_that_cannot_learn_are_refused_before_the_first_job(
    tmp_path: Path, options: list[str]
) -> None:
    runs_dir = tmp_path / "runs"
    words = ["CartPole-v1", "Pendulum-v1", "--vary", "algorithm=ppo,sac", "--seeds", "1-3"]
    result = CliRunner().invoke(app, ["sweep", *words, *options, "--runs-dir", str(runs_dir)])
    assert result.exit_code == EXIT_USAGE, result.output
    told = "CartPole-v1, algorithm=sac: algorithm: sac cannot learn CartPole-v1, which has discrete"
    assert result.stderr.count("cannot learn") == result.stderr.count(told) == 1
    assert not runs_dir.exists()


def test_a_search_that_cannot_learn_is_refused_too(tmp_path: Path) -> None:
    words = ["CartPole-v1", "--algorithm", "sac", *SEARCH, "--runs-dir", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, ["sweep", *words])
    assert result.exit_code == EXIT_USAGE, result.output
    assert "CartPole-v1, trials: algorithm: sac cannot learn CartPole-v1" in result.stderr


def test_another_sweep_of_the_same_name_is_refused(whole: Path) -> None:
    words = ["sweep", "CartPole-v1", "--name", "four", "--runs-dir", str(whole)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == EXIT_USAGE
    assert "another sweep is called four" in result.stderr


def test_a_dry_run_prices_each_kind_of_job_and_trains_nothing(tmp_path: Path) -> None:
    words = ["CartPole-v1", "--seeds", "2", "--vary", "preset=standard,paper"]
    fields = ["--eval-every", "0", "--num-epochs", "2"]
    options = [*fields, "--total-steps", "20_000", "--dry-run", "--json"]
    options += ["--runs-dir", str(tmp_path)]
    result = CliRunner().invoke(app, ["sweep", *words, *options])
    assert result.exit_code == 0, result.output
    standard, paper = json.loads(result.stdout)["groups"]
    assert standard["jobs"] == 2
    assert standard["minutes"] > 0.0
    assert 0.0 < standard["usd"] < 1.0
    assert paper["usd"] is None
    assert "equal updates" in paper["reason"]
    assert [*tmp_path.iterdir()] == []


SEARCH = ["--search", "hyperparameters.learning_rate=1e-4:1e-2:log", "--trials", "3"]
RUNGS = ["--rungs", "128", "--final-seeds", "1", "--seeds", "1"]


def searching(runs_dir: Path) -> subprocess.Popen[bytes]:
    """Begin a search of three trials that pause at a rung."""
    words = ["CartPole-v1", "--name", "four", *SETS, *SEARCH, *RUNGS]
    with (runs_dir.parent / "log").open("ab") as log:
        return subprocess.Popen(typed(runs_dir, *words), stdout=log, stderr=log)


def some_have_paused(runs_dir: Path) -> bool:
    folder = SweepFolder(runs_dir, "four")
    return folder.exists() and any(row.status == "paused" for row in folder.rows())


def test_a_killed_search_goes_on_to_the_same_trials(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    whole, cut = (tmp_path_factory.mktemp(name) / "runs" for name in ("whole", "cut"))
    assert searching(whole).wait(300) == 0, (whole.parent / "log").read_text()
    process = searching(cut)
    wait_until(partial(some_have_paused, cut))
    process.kill()
    process.wait()
    assert resumed(cut) == 0, (cut.parent / "log").read_text()
    expected, found = rows_of(whole), rows_of(cut)
    assert [row.status for row in expected] == [row.status for row in found]
    assert [row.values for row in expected] == [row.values for row in found]
    # How far a job goes beyond its rung depends on time; what counts there does not.
    marks = [row.pause_steps or 1e9 for row in expected]
    assert [
        row.outcome and row.outcome.return_at(m) for row, m in zip(found, marks, strict=True)
    ] == [row.outcome and row.outcome.return_at(m) for row, m in zip(expected, marks, strict=True)]
    assert sum(row.status == "paused" for row in found) == 1
    assert sum(row.final for row in found) == 1
