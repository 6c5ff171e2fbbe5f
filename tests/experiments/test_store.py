"""Outcomes on disk: read back as they were, never of another task, never half."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.catalogue import load
from experiments.grid import Cell, CellId, Grid
from experiments.outcome import JobOutcome
from experiments.store import Store, packed_cells
from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from shared.contracts.learner_functions import LearnerFunctions
from shared.contracts.learner_kind import LearnerChoice
from shared.hyperparameters.presets import ALGORITHMS
from tests.experiments.made_up import outcome
from tests.experiments.reporting.test_report import SUMMARY

CELL = Cell(id=CellId("fixed at Nitro's mean", "ALE/Pong-v5", 3), task=JobSpec(seed=3))


def test_an_outcome_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path, load("policies"), quick=False)
    assert store.read(CELL) is None
    made = outcome([0, 1.5], ratios=[None])
    store.write(CELL, made)
    assert store.read(CELL) == made
    (file,) = tmp_path.rglob("*.json")
    assert file.relative_to(tmp_path).parts[-3:] == (
        "fixed-at-Nitro-s-mean",
        "ALE-Pong-v5",
        "3.json",
    )


def test_an_outcome_of_another_task_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path, load("policies"), quick=False)
    store.write(CELL, outcome([0, 1]))
    assert store.read(Cell(id=CELL.id, task=JobSpec(seed=3, steps_per_actor=512))) is None


@pytest.mark.parametrize(("learner", "counts"), [("cpu", False), ("functions", True)])
def test_rules_of_functions_count_where_functions_learn(
    tmp_path: Path, learner: LearnerChoice, *, counts: bool
) -> None:
    store = Store(tmp_path, load("policies"), quick=False)
    task = JobSpec(seed=3, learner=learner)
    store.write(replace(CELL, task=task), outcome([0, 1]))
    changed = task.model_copy(update={"learner_functions": LearnerFunctions(slices=4)})
    assert (store.read(replace(CELL, task=changed)) is None) is counts


def test_an_outcome_of_another_preset_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned() -> Cell:
        grid = Grid()
        grid.add_job("a", "Hopper-v5", 0, {})
        return grid.cells[0]

    store = Store(tmp_path, load("policies"), quick=False)
    store.write(planned(), outcome([0, 1]))
    assert store.read(planned()) is not None
    ppo = ALGORITHMS["ppo"]
    changed = ppo.presets["paper"].model_copy(update={"learning_rate": 1e-3})
    monkeypatch.setitem(ALGORITHMS, "ppo", replace(ppo, presets={**ppo.presets, "paper": changed}))
    assert store.read(planned()) is None


def test_quick_results_are_never_taken_for_real_ones(tmp_path: Path) -> None:
    Store(tmp_path, load("policies"), quick=True).write(CELL, outcome([0, 1]))
    assert Store(tmp_path, load("policies"), quick=False).read(CELL) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path, load("policies"), quick=False)
    store.write(CELL, outcome([0, 1]))
    (file,) = tmp_path.rglob("*.json")
    file.write_text(file.read_text()[:-20])
    with pytest.raises(CommandError, match=r"3\.json.*delete it"):
        store.read(CELL)


def test_packed_cells_are_read_back_to_six_digits_and_new_ones_join_them(tmp_path: Path) -> None:
    experiment = load("policies")
    store = Store(tmp_path, experiment, quick=False)
    made = outcome([0, 1.23456789], ratios=[None])
    store.write(CELL, made)
    store.write_summary(SUMMARY)
    assert [path.name for path in store.folder.iterdir() if path.is_dir()] == []
    packed = Store(tmp_path, experiment, quick=False).read(CELL)
    assert isinstance(packed, JobOutcome)
    assert packed.final_return == 1.23457
    assert packed.stop_reason == made.stop_reason
    another = replace(CELL, id=CellId("another", "Hopper-v5", 1))
    store.write(another, made)
    assert store.read(another) == made
    store.write_summary(SUMMARY)
    assert set(packed_cells(store.folder)) == {CELL.id, another.id}
    assert Store(tmp_path, experiment, quick=False).read(CELL) == packed


def test_a_damaged_pack_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path, load("policies"), quick=False)
    store.write(CELL, outcome([0, 1]))
    store.write_summary(SUMMARY)
    path = store.folder / "cells.xz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CommandError, match=r"cells\.xz: damaged"):
        store.read(CELL)
