"""Steps to a return, out of the reference runs that come with the source tree."""

import pytest

from nitro.errors import CommandError
from nitro.planning.known_steps import first_at, steps_to_return
from shared.contracts.job_spec import JobSpec


def job(env_id: str, *, actors: tuple[int, int] = (8, 8), horizon: int | str = "limit") -> JobSpec:
    few, many = actors
    body = {
        "env_id": env_id,
        "preset": "standard",
        "actors": {"min": few, "max": many},
        "episodes": {"horizon": horizon},
        "stop": {"max_rounds": 1},
    }
    return JobSpec.model_validate(body)


def test_a_recorded_environment_tells_how_many_steps_a_return_takes() -> None:
    low, high = (steps_to_return(job("Walker2d-v4"), target).steps for target in (500.0, 2000.0))
    assert 50_000 < low < high < 1_000_000


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        (job("Hopper-v5", actors=(8, 8)), "first_run.json (5 runs, "),
        (job("Hopper-v5", actors=(8, 64)), "first_run_nitro.json (2 runs, "),
        (job("Hopper-v5", actors=(3, 3)), "first_run.json (5 runs, "),
        (
            job("HalfCheetah-v5", horizon=64),
            "references/halfcheetah-v5-ppo-standard-32x64-64-500000.json (3 runs, ",
        ),
        (
            job("HalfCheetah-v5", horizon="limit"),
            "references/halfcheetah-v5-ppo-standard-32x64-limit.json (1 runs, preset standard, "
            "32 to 32 actors, horizon limit)",
        ),
    ],
    ids=["fixed", "scaled", "most seeds", "horizon", "limit"],
)
def test_the_runs_most_like_the_job_are_asked(spec: JobSpec, source: str) -> None:
    assert steps_to_return(spec, 1000.0).source.startswith(f"benchmarks/results/{source}")


def test_a_return_that_is_never_reached_has_no_steps() -> None:
    assert first_at([(100, 1.0), (200, 3.0), (300, 2.0)], 2.5) == 200
    assert first_at([(100, 1.0)], 2.5) is None


@pytest.mark.parametrize(
    ("env_id", "target", "message"),
    [
        ("Swimmer-v5", 100.0, "no recorded run of Swimmer-v5 .* give --total-steps"),
        ("Walker2d-v4", 1e6, r"0 of \d+ recorded runs .* best is \d+"),
    ],
)
def test_what_no_run_says_is_asked_for(env_id: str, target: float, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        steps_to_return(job(env_id), target)
