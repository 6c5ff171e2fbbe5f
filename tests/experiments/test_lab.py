"""A cell's job is trained on a real local system, and no longer than its experiment looks at it."""

from dataclasses import replace

from experiments.catalogue import load
from experiments.grid import Cell, CellId
from experiments.lab import Lab
from experiments.outcome import JobOutcome
from shared.contracts.job_spec import JobSpec

STEPS, ROUNDS = 64, 100_000


def test_a_job_is_stopped_after_the_most_steps_that_count() -> None:
    body = {
        "env_id": "CartPole-v1",
        "steps_per_actor": STEPS,
        "actors": {"min": 1, "max": 1},
        "scaling": {"policy": "fixed", "num_actors": 1},
        "stop": {"max_rounds": ROUNDS},
    }
    task = JobSpec.model_validate(body)
    cell = Cell(id=CellId("fixed 1", task.env_id, 0), task=task)
    progress: list[int] = []
    experiment = replace(load("dollars"), most_steps=3 * STEPS)
    with Lab(experiment, parallel=1, progress=lambda _, rounds: progress.append(rounds)) as lab:
        lab.add([cell])
        ((made, outcome),) = lab.outcomes()
    assert made is cell
    assert isinstance(outcome, JobOutcome)
    assert outcome.stop_reason == "user"
    assert 3 <= len(outcome.rounds) == progress[-1] < ROUNDS
    assert [each.env_steps for each in outcome.rounds] == [STEPS] * len(outcome.rounds)
