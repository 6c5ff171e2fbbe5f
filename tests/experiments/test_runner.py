"""Cells that are there are summed up again, wherever they were made."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from experiments.catalogue import load
from experiments.grid import Scale
from experiments.runner import Run, run_experiment
from experiments.store import Store
from experiments.studies.paper.surface import SurfaceOutcome
from nitro.errors import CommandError
from tests.experiments.made_up import MACHINE, outcome


def test_a_summary_names_the_machine_of_its_cells_and_not_its_own(tmp_path: Path) -> None:
    experiment, scale = load("surface"), Scale(seeds=1, quick=True)
    store = Store(tmp_path, experiment, quick=True)
    made = SurfaceOutcome(
        round=1,
        ratio=0.5,
        eigenvalues=(-2.0, 1.0),
        axis=(-1.0, 1.0),
        returns=((1.0, 2.0), (3.0, 4.0)),
        centre=2.5,
        environment=MACHINE,
    )
    for cell in experiment.plan(scale, {}).cells:
        store.write(cell, made)
    summary = run_experiment(
        experiment, Run(scale=scale, out=tmp_path), console=Console(file=io.StringIO())
    )
    assert summary.measured_on == ("2 x one, commit abc",)


def test_what_is_made_is_summed_up_without_the_rest(tmp_path: Path) -> None:
    experiment, scale = load("horizon"), Scale(seeds=3, quick=True)
    store, cells = Store(tmp_path, experiment, quick=True), experiment.plan(scale, {}).cells
    store.write(cells[0], outcome((1.0, 2.0)))
    summary = run_experiment(
        experiment,
        Run(scale=scale, out=tmp_path, only_made=True),
        console=Console(file=io.StringIO()),
    )
    assert (summary.cells, summary.seeds) == (1, 1)
    nothing = Run(scale=scale, out=tmp_path / "empty", only_made=True)
    with pytest.raises(CommandError, match="--only-made: no run of horizon"):
        run_experiment(experiment, nothing, console=Console(file=io.StringIO()))
    assert not (tmp_path / "empty").exists()
    assert [left.what for left in summary.left_out] == [f"{len(cells) - 1} of {len(cells)} runs"]
