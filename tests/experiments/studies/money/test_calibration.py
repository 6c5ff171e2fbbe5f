"""A calibration: what it measures, and what is read of it."""

import pytest

from experiments.catalogue import load
from experiments.durations import Durations
from experiments.grid import Cell, CellId, Scale
from experiments.studies.money.calibration import calibrate, durations, medians
from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from tests.experiments.made_up import MACHINE


def cell_of(env_id: str) -> Cell:
    """A small job of the calibration's form."""
    spec = JobSpec.model_validate(
        {
            "env_id": env_id,
            "preset": "standard",
            "steps_per_actor": 32,
            "actors": {"min": 2, "max": 2},
            "scaling": {"policy": "fixed", "num_actors": 2},
            "hyperparameters": {"num_epochs": 1, "hidden_sizes": [8, 8]},
        }
    )
    return Cell(id=CellId("standard", env_id, 0), task=spec)


def test_every_duration_is_measured() -> None:
    found = calibrate(cell_of("CartPole-v1"))
    assert 0 < found.step_s < found.call_s
    assert found.gradient_step_s > 0
    assert found.measuring_s > 0
    assert (found.num_epochs, found.minibatch_size) == (1, 64)
    assert 10 < found.bytes_per_sample < 1000


def known(step_s: float) -> Durations:
    return Durations(
        step_s=step_s,
        reset_s=0.0,
        call_s=0.0,
        update_fixed_s=0.0,
        gradient_step_s=1.0,
        measuring_s=0.0,
        num_epochs=10,
        minibatch_size=64,
        bytes_per_sample=1.0,
        environment=MACHINE,
    )


def test_repetitions_count_by_their_medians_and_are_told_with_their_range() -> None:
    made = [known(step_s) for step_s in (0.002, 0.001, 0.009)]
    assert medians(made).step_s == 0.002
    done = {CellId("standard", "Hopper-v4", seed): each for seed, each in enumerate(made)}
    (table,) = load("calibration").find(Scale(seeds=3, quick=False), done).tables
    assert table.rows[0][:3] == ("Hopper-v4", "standard", "2 [1, 9]")


def test_what_the_recorded_runs_are_priced_by_is_there() -> None:
    hopper = durations("Hopper-v4", "standard")
    assert hopper.minibatch_size == 64
    assert durations("Hopper-v4", "paper").gradient_step_s > hopper.gradient_step_s
    with pytest.raises(CommandError, match="nothing is calibrated"):
        durations("Nothing-v0", "standard")
