"""`nitro.sweep` by the real system."""

from pathlib import Path
from typing import Any

import pytest

import nitro
from tests.nitro.conftest import TINY

JOB: dict[str, Any] = {name: value for name, value in TINY.items() if name != "env_id"}


def test_a_sweep_in_python_has_table_picture_and_runs(tmp_path: Path) -> None:
    found = nitro.sweep(
        "CartPole-v1",
        seeds=2,
        vary={"hyperparameters.learning_rate": [1e-3, 1e-4]},
        name="two",
        runs_dir=tmp_path,
        preset="paper",
        **JOB,
    )
    groups = found.results.groups
    assert [(group.setting, group.seeds) for group in groups] == [
        ("learning_rate=0.001", 2),
        ("learning_rate=0.0001", 2),
    ]
    assert [run.job.spec.seed for run in found.runs] == [1, 1, 2, 2]
    assert found.plot(tmp_path / "picture.png").stat().st_size > 10_000
    assert found.text("csv").count("\n") == 2
    again = nitro.load_sweep("two", runs_dir=tmp_path)
    assert again.results == found.results
    assert "4 jobs" in repr(again)


def test_what_is_wrong_is_raised_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(nitro.CommandError, match="use plain numbers"):
        nitro.sweep("CartPole-v1", vary={"preset": [object()]}, runs_dir=tmp_path)
    with pytest.raises(nitro.CommandError, match="no sweep"):
        nitro.load_sweep("none", runs_dir=tmp_path)
    assert [*tmp_path.iterdir()] == []
