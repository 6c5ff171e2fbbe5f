"""Runs as tables, and all runs of a folder, from Python."""

import sys
from itertools import accumulate
from pathlib import Path

import pytest

import nitro
from nitro.runs.reading import read_run
from tests.nitro.synthetic_run import write_run


def test_the_rounds_of_a_run_are_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    folder = write_run(tmp_path, rounds=6)
    frame = nitro.load(folder).to_pandas()
    lines = [line for line in read_run(folder).rounds if line.result]
    assert [*frame["round"]] == [0, 1, 2, 3, 4, 5]
    assert [*frame["env_steps"]] == [
        *accumulate(line.result.env_steps for line in lines if line.result)
    ]
    assert [*frame["num_actors"]] == [line.plan.num_actors for line in lines]
    evaluated = [line.evaluation is not None for line in lines]
    assert [*frame["evaluation"].notna()] == evaluated
    assert any(evaluated)
    assert not all(evaluated)
    assert frame["training_return"].dtype == float
    assert pandas.isna(frame["boosting_score"][0])


def test_without_pandas_the_table_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = nitro.load(write_run(tmp_path, rounds=1))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(nitro.CommandError, match="pip install pandas"):
        run.to_pandas()


def test_all_runs_of_a_folder_are_loaded_newest_first(tmp_path: Path) -> None:
    write_run(tmp_path, job_id="hopper-v5-aa", created_at=1.0)
    write_run(tmp_path / "sweep", job_id="hopper-v5-bb", created_at=2.0, asked={"tags": ["a"]})
    assert [run.job_id for run in nitro.load_runs(tmp_path)] == ["hopper-v5-bb", "hopper-v5-aa"]
    assert [run.job_id for run in nitro.load_runs(tmp_path, tags=["a"])] == ["hopper-v5-bb"]
    assert nitro.load_runs(tmp_path, env="walker") == []
    with pytest.raises(nitro.CommandError, match="--state: must be one of"):
        nitro.load_runs(tmp_path, state="done")
