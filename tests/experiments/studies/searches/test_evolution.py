"""What `evolution` makes of runs that were never run."""

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from shared.contracts.job_spec import JobSpec
from tests.experiments.made_up import outcome


def test_jobs_are_those_of_the_command_on_functions() -> None:
    cells = {c.id: c.task for c in load("evolution").plan(Scale(seeds=1, quick=False), {}).cells}
    spec = cells[CellId("ars", "Hopper-v5", 0)]
    assert isinstance(spec, JobSpec)
    assert (spec.actors.own, spec.warm, spec.learner) == (0, "reuse", "cpu")
    assert (spec.stop.max_env_steps, spec.hyperparameters["directions"]) == (1_000_000, 8)


def test_ars_is_ahead_where_every_run_is() -> None:
    runs = {"ars": outcome([0, 50, 100]), "ppo": outcome([0, 5, 10])}
    done = {CellId(name, "Swimmer-v5", k): run for name, run in runs.items() for k in range(4)}
    found = load("evolution").find(Scale(seeds=4, quick=False), done)
    assert [claim.verdict for claim in found.claims] == ["holds", "holds"]
    assert [row[1] for row in found.tables[0].rows] == ["100 [100, 100]", "10 [10, 10]"]
