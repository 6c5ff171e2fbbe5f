"""Jobs of an experiment, trained as a sweep on a real local system."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from experiments.catalogue import load
from experiments.experiment import Done, Experiment
from experiments.grid import Cell, CellId, Grid, Scale
from experiments.outcome import JobOutcome
from experiments.runner import Run, run_experiment
from experiments.store import packed_cells
from experiments.training import Training
from nitro.errors import CommandError
from nitro.sweeps.folder import SweepFolder
from shared.contracts.job_spec import JobSpec

STEPS = 64
SCALE = Scale(seeds=1, quick=False)


def job(**fields: object) -> JobSpec:
    body = {
        "env_id": "CartPole-v1",
        "steps_per_actor": STEPS,
        "actors": {"min": 1, "max": 1},
        "scaling": {"policy": "fixed", "num_actors": 1},
        "evaluation": {"every_rounds": 1, "episodes": 1},
        "hyperparameters": {"num_epochs": 1},
    }
    return JobSpec.model_validate(body | fields)


def cell(condition: str, task: JobSpec) -> Cell:
    return Cell(id=CellId(condition, task.env_id, 0), task=task)


def made_of(plan: Callable[[Scale, Done], Grid], *, most_steps: int | None = None) -> Experiment:
    return replace(load("horizon"), name="made_up", plan=plan, most_steps=most_steps)


def run(experiment: Experiment, out: Path) -> None:
    asked = Run(scale=SCALE, out=out, parallel=1)
    run_experiment(experiment, asked, console=Console(file=io.StringIO()))


def test_jobs_follow_from_outcomes_and_none_is_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is stopped after the most steps that count is followed by another one."""
    first = cell("first", job(stop={"max_rounds": 100_000}))
    found: list[JobOutcome] = []

    def plan(_: Scale, done: Done) -> Grid:
        if first.id not in done:
            return Grid(cells=[first])
        found[:] = [done[first.id]]
        return Grid(cells=[first, cell("second", job(stop={"max_rounds": 2}))])

    experiment = made_of(plan, most_steps=3 * STEPS)
    run(experiment, tmp_path)
    (outcome,) = found
    assert outcome.stop_reason == "user"
    assert 3 <= len(outcome.rounds) < 100_000
    assert {each.env_steps for each in outcome.rounds} == {STEPS}
    folder = tmp_path / "made_up"
    assert [key.condition for key in packed_cells(folder)] == ["first", "second"]
    assert not (folder / "sweeps").exists()
    monkeypatch.setattr(Training, "_begin", pytest.fail)
    run(experiment, tmp_path)


def test_an_experiment_cut_short_goes_on_with_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = job(stop={"max_rounds": 3})
    experiment = made_of(lambda _, __: Grid(cells=[cell("one", task), cell("two", task)]))
    keep = Training._keep

    def dying(self: Training, *given: object) -> None:
        keep(self, *given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Training, "_keep", dying)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, tmp_path)
    folder = SweepFolder(tmp_path / "made_up", "jobs")
    begun = [row.job_id for row in folder.rows() if row.job_id]
    begin = Training._begin
    left: list[str | None] = []

    def beginning(self: Training) -> None:
        begin(self)
        left.extend(row.job_id for row in folder.rows() if row.job_id)

    monkeypatch.setattr(Training, "_begin", beginning)
    run(experiment, tmp_path)
    assert left == begun
    assert len(packed_cells(tmp_path / "made_up")) == 2


def test_jobs_that_fail_are_told_and_the_others_are_kept(tmp_path: Path) -> None:
    wrong = job(env_id="Nowhere-v0", stop={"max_rounds": 1})
    right = job(stop={"max_rounds": 1})
    experiment = made_of(lambda _, __: Grid(cells=[cell("wrong", wrong), cell("right", right)]))
    with pytest.raises(CommandError, match="Nowhere-v0/wrong/0"):
        run(experiment, tmp_path)
    assert len([*(tmp_path / "made_up" / "cells").glob("right/*/*.json")]) == 1
