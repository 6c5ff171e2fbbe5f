"""Which cells experiments make, and which only once others are done."""

from typing import Any

import pytest

from experiments.catalogue import NAMES, load
from experiments.experiment import Experiment
from experiments.grid import CellId, Grid, Scale
from experiments.studies.paper.boosting import chosen_rounds, gains
from experiments.studies.paper.gain import lowest_rounds
from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import FixedScaling, ScheduleScaling
from tests.experiments.made_up import outcome

FULL = Scale(seeds=2, quick=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quick", [False, True])
def test_plans_are_equal_for_equal_input_and_every_cell_is_named_once(
    name: str, quick: bool
) -> None:
    if name in ("slow_simulators", "calibration"):
        pytest.importorskip("highway_env")
    experiment = load(name)
    scale = Scale(seeds=2, quick=quick)
    grid = experiment.plan(scale, {})
    assert experiment.name == name
    assert grid.cells
    assert grid.cells == experiment.plan(scale, {}).cells
    assert len({cell.id for cell in grid.cells}) == len(grid.cells)
    assert {cell.id.seed for cell in grid.cells} == {0, 1}
    assert all(isinstance(cell.task, experiment.task) for cell in grid.cells)


def planned(experiment: Experiment, done: dict[CellId, Any]) -> dict[CellId, JobSpec]:
    cells = experiment.plan(FULL, done).cells
    return {cell.id: cell.task for cell in cells if isinstance(cell.task, JobSpec)}


def test_jobs_of_a_full_run_have_the_papers_settings() -> None:
    spec = planned(load("policies"), {})[CellId("nitro", "Hopper-v4", 1)]
    assert (spec.stop.max_rounds, spec.steps_per_actor, spec.seed) == (50, 256, 1)
    assert (spec.actors.min, spec.actors.max) == (8, 64)
    assert (spec.algorithm, spec.preset) == ("ppo", "paper")


def test_nitros_mean_is_planned_once_nitros_run_is_known() -> None:
    mean = CellId("fixed at Nitro's mean", "Hopper-v4", 0)
    assert mean not in planned(load("policies"), {})
    done = {CellId("nitro", "Hopper-v4", 0): outcome([0, 1, 2], actors=[64, 11])}
    assert planned(load("policies"), done)[mean].scaling == FixedScaling(
        policy="fixed", num_actors=38
    )


def test_the_same_policies_are_compared_in_the_other_preset() -> None:
    done = {CellId("nitro", "Hopper-v4", 0): outcome([0, 1, 2], actors=[64, 11])}
    paper, standard = (planned(load(name), done) for name in ("policies", "policies_standard"))
    assert {spec.preset for spec in standard.values()} == {"standard"}
    # Fragments begin with a reset in both, as the paper's do.
    changes = {"preset": "standard", "episodes": {"horizon": "fragment"}}
    assert standard == {
        cell: JobSpec.model_validate({**spec.model_dump(mode="json"), **changes})
        for cell, spec in paper.items()
    }


def test_boosted_rounds_are_chosen_by_ratio() -> None:
    base = outcome([0] * 6, ratios=[None, 2.0, 0.5, 3.0, 1.0])
    assert chosen_rounds(base) == (2, 1, 3)
    assert chosen_rounds(outcome([0, 0])) == (0, 0, 0)
    done = {CellId("one actor", "Hopper-v4", 0): base}
    specs = planned(load("boosting"), done)
    scaling = specs[CellId("lowest R", "Hopper-v4", 0)].scaling
    assert scaling == ScheduleScaling(policy="schedule", num_actors=(1, 1, 16, 1))


def test_gain_is_the_return_after_the_boosted_round_less_that_before() -> None:
    run = outcome([1, 2, 10, 11], actors=[1, 16, 1], ratios=[None, 0.5, 2.0])
    assert gains([run]) == [(8.0, 1.5)]


def test_the_lowest_ratio_of_every_ten_rounds_is_boosted_in_a_run_that_ends_there() -> None:
    ratios: list[float | None] = [None] + [2.0] * 24
    ratios[3], ratios[17] = 0.1, 0.2
    base = outcome([0] * 26, ratios=ratios)
    assert lowest_rounds(base) == [3, 17, 20]
    specs = planned(load("gain"), {CellId("one actor", "Hopper-v4", 0): base})
    boosted = specs[CellId("stretch 1, 32x", "Hopper-v4", 0)]
    assert boosted.stop.max_rounds == 18
    assert boosted.scaling == ScheduleScaling(policy="schedule", num_actors=(*[1] * 17, 32))


def test_what_cannot_be_trained_is_left_out_with_the_reason() -> None:
    grid = Grid()
    grid.add_job("a", "NoSuchGame-v0", 0, {})
    grid.add_job("b", "CartPole-v1", 0, {"algorithm": "sarsa"})
    assert not grid.cells
    assert "NoSuchGame" in grid.left_out["a on NoSuchGame-v0"]
    assert "algorithm" in grid.left_out["b on CartPole-v1"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match="policies"):
        load("nothing")
