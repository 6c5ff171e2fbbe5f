"""The runs that `dollars` asks for."""

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome
from experiments.studies.money.calibration import durations
from experiments.studies.money.dollars_grid import EQUAL_STEPS, NITRO
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import ScheduleScaling
from tests.experiments.made_up import outcome

FULL = Scale(seeds=6, quick=False)
HOPPER = "Hopper-v4"


def test_steps_of_eight_have_as_many_gradient_steps_whatever_the_actors() -> None:
    cells = {c.id: c for c in load("dollars").plan(Scale(seeds=1, quick=False), {}).cells}
    eight = durations(HOPPER, "standard").gradient_steps(8 * 256)
    for name, size in EQUAL_STEPS.items():
        task = cells[CellId(name, HOPPER, 0)].task
        assert isinstance(task, JobSpec)
        known = durations(HOPPER, f"standard, minibatches of {size}")
        assert known.minibatch_size == task.hyperparameters["minibatch_size"] == size
        assert known.gradient_steps(task.actors.max * 256) == eight


def test_nitro_reversed_in_time_ends_with_the_actors_it_began_with() -> None:
    def of(nitro: JobOutcome) -> tuple[int, ...]:
        done = {CellId(NITRO, HOPPER, 0): nitro}
        cells = {cell.id: cell.task for cell in load("dollars").plan(FULL, done).cells}
        task = cells[CellId("nitro, reversed in time", HOPPER, 0)]
        assert isinstance(task, JobSpec)
        assert isinstance(task.scaling, ScheduleScaling)
        assert len(task.scaling.num_actors) == task.stop.max_rounds
        return task.scaling.num_actors

    nitro = outcome([0, 1, 2, 3], actors=[64, 30, 11])
    assert of(nitro)[:5] == (11, 30, 64, 64, 64)
    # The evaluation beside the third round has the return, and that round says nothing.
    assert of(outcome([0, 1, 2500, 3], actors=[64, 30, 11]))[:4] == (30, 64, 64, 64)
    # Nor does what came after a million steps.
    long = [each.model_copy(update={"env_steps": 600_000}) for each in nitro.rounds]
    assert of(nitro.model_copy(update={"rounds": tuple(long)}))[:3] == (30, 64, 64)
