"""`nitro experiment` as a user starts it: cut short, gone on with, drawn again."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.grid import CellId
from experiments.reporting.findings import Summary
from experiments.store import packed_cells
from nitro.cli.experiment_command import app

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nitro.cli.main", "experiment", *arguments]


def nitro(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )


def interrupted_after_one_cell(*arguments: str, cells: Path) -> int:
    """Start a run, press Ctrl-C once it has written a cell, and return its exit code."""
    pause, give_up_at = threading.Event(), time.monotonic() + PATIENCE_S
    with subprocess.Popen(
        command(*arguments), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not list(cells.rglob("*.json")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < give_up_at
            pause.wait(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        return process.returncode


def test_an_experiment_survives_ctrl_c_and_does_no_cell_twice(tmp_path: Path) -> None:
    run = ("run", "ablation", "--quick", "--parallel", "1", "--out", str(tmp_path))
    folder = tmp_path / "quick" / "ablation"
    code = interrupted_after_one_cell(*run, cells=folder / "cells")
    (first, *others) = folder.rglob("cells/*/*/*.json")
    assert (code, others) == (130, [])
    made_first = json.loads(first.read_text())
    assert not (folder / "ablation.json").exists()

    done = nitro(*run)
    assert done.returncode == 0, done.stderr
    assert "2 cells, 1 to be made" in done.stderr
    assert "mean nothing" in done.stdout
    assert not (folder / "cells").exists()
    packed = packed_cells(folder)
    assert len(packed) == 2

    summary = Summary.model_validate_json((folder / "ablation.json").read_bytes())
    assert summary.quick
    assert summary.cells == 2
    assert {claim.verdict for claim in summary.claims} == {"quick run: says nothing"}
    assert summary.environment.libraries["torch"]
    cell = CellId(made_first["condition"], made_first["env_id"], made_first["seed"])
    record = json.loads(packed[cell])
    assert record["task"] == made_first["task"]
    assert len(record["outcome"]["rounds"]) == 3
    assert record["outcome"]["wall_s"] == pytest.approx(made_first["outcome"]["wall_s"], rel=1e-5)

    (folder / "ablation.png").unlink()
    drawn = CliRunner().invoke(app, ["plot", "ablation", "--quick", "--out", str(tmp_path)])
    assert drawn.exit_code == 0, drawn.output
    assert (folder / "ablation.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    unknown = CliRunner().invoke(app, ["run", "nothing", "--out", str(tmp_path)])
    assert unknown.exit_code == 2
    assert "known: actors, policies" in unknown.stderr
    undone = CliRunner().invoke(app, ["plot", "gain", "--out", str(tmp_path)])
    assert undone.exit_code == 2
    assert f"nitro experiment run gain --out {tmp_path}\n" in undone.stderr
    quick = CliRunner().invoke(app, ["plot", "gain", "--quick", "--out", str(tmp_path)])
    assert f"nitro experiment run gain --quick --out {tmp_path}\n" in quick.stderr
    going = CliRunner().invoke(app, ["plot", "gain", "--horizon", "limit", "--out", str(tmp_path)])
    assert f"nitro experiment run gain --horizon limit --out {tmp_path}\n" in going.stderr
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_hold_results_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for arguments in (["run", "ablation"], ["run", "detector_subsampling"], ["list"], ["report"]):
        refused = CliRunner().invoke(app, [*arguments, "--out", str(file)])
        assert refused.exit_code == 2, refused.exception
        assert str(file) in refused.stderr


def test_an_option_that_means_nothing_to_an_experiment_is_refused(tmp_path: Path) -> None:
    for name in ("breakdown", "scalability", "surface", "detector_subsampling"):
        refused = CliRunner().invoke(
            app, ["run", name, "--quick", "--parallel", "2", "--out", str(tmp_path / "new")]
        )
        assert (refused.exit_code, refused.stderr[:11]) == (2, "--parallel:"), name
    assert not list(tmp_path.iterdir())
