"""Rounds for a number of steps, beside adding rounds up one by one."""

import pytest
from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.spec.total_steps import parse_steps, planned_steps, rounds_for
from shared.contracts.job_spec import JobSpec


def job(**fields: JsonValue) -> JobSpec:
    return JobSpec.model_validate({"actors": {"min": 2, "max": 8}, **fields})


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (job(scaling={"policy": "fixed", "num_actors": 3}), [768] * 9),
        (job(scaling={"policy": "schedule", "num_actors": [2, 8, 4]}), [512, 2048] + [1024] * 7),
        (job(samples_per_round=2048), [2044] * 9),  # as seven actors have it: 292 steps each
        (job(actors={"min": 4, "max": 4}, steps_per_actor=100), [400] * 9),
    ],
)
def test_rounds_are_the_fewest_that_make_the_steps(spec: JobSpec, sizes: list[int]) -> None:
    for rounds in range(1, len(sizes) + 1):
        made = sum(sizes[:rounds])
        assert rounds_for(spec, made) == rounds
        assert rounds_for(spec, made - 1) == rounds
        stop = spec.stop.model_copy(update={"max_rounds": rounds})
        assert planned_steps(spec.model_copy(update={"stop": stop})) == made


def test_where_actors_decide_the_steps_nothing_is_promised() -> None:
    assert planned_steps(job()) is None
    with pytest.raises(CommandError, match=r"512 to 2,048 steps.*--set samples_per_round=N"):
        rounds_for(job(), 1_000_000)
    with pytest.raises(CommandError) as off_policy:
        rounds_for(job(algorithm="impact"), 1_000_000)
    assert "samples_per_round" not in str(off_policy.value)


def test_more_steps_than_a_job_can_make_are_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(CommandError, match="--total-steps: 1,000,000,000,000 exceeds"):
        rounds_for(job(samples_per_round=2048), 10**12)


@pytest.mark.parametrize(("text", "steps"), [("1e6", 10**6), ("1_000_000", 10**6), ("7", 7)])
def test_steps_are_written_as_people_write_them(text: str, steps: int) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "many", "nan", "inf", ""])
def test_what_is_no_number_of_steps_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--total-steps: must be a whole number"):
        parse_steps(text)
