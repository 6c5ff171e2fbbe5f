"""What is said of a job before it trains."""

from typing import Any

import pytest

from nitro.hints import Place
from nitro.runs.summary import duration
from nitro.spec.advice import advice, time_on_cpu
from nitro.spec.dry_run import described
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import resolve_for
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES

QUICK: dict[str, Any] = {
    "preset": "standard",
    "scaling": {"policy": "fixed", "num_actors": 8},
    "actors": {"min": 8, "max": 8},
    "steps_per_actor": 128,
}


def told(environment: EnvironmentSpec, *, cores: int | None = 2, **fields: Any) -> list[str]:
    spec = JobSpec.model_validate(fields)
    full = resolve_for(spec, environment)
    rounds = spec.stop.max_rounds
    return advice(spec, environment, full, rounds=rounds, cpu_cores=cores, place=Place())


@pytest.mark.parametrize(
    ("fields", "steps"),
    [({}, "256"), ({"steps_per_actor": 1024, "envs_per_actor": 4}, "256")],
)
def test_episodes_that_rollouts_are_too_short_for_are_told(
    fields: dict[str, Any], steps: str
) -> None:
    (line,) = told(HOPPER, **fields)
    assert "episodes may last 1,000 steps" in line
    assert f"takes {steps}:" in line


def test_episodes_that_should_go_on_and_cannot_are_told() -> None:
    going_on: dict[str, Any] = {"episodes": {"horizon": "limit"}}
    assert told(HOPPER.model_copy(update={"keeps_state": True}), **going_on) == []
    why, lost = told(HOPPER, **going_on)
    assert "nitro check-env" in why
    assert "takes 256: later steps are never learned from (raise --steps-per-actor)" in lost
    _, lost = told(HOPPER, **going_on, samples_per_round=2048)
    assert "takes 32: later steps are never learned from (take fewer actors" in lost
    _, parts = told(HOPPER, episodes={"horizon": 64})
    assert "cut after 64 steps" in parts
    _, lost = told(HOPPER, episodes={"horizon": 500})
    assert "may last 500 steps, but a rollout begins with a reset and takes 256:" in lost


def test_environments_that_disturb_each_other_are_told_what_to_set() -> None:
    shared = HOPPER.model_copy(update={"repeats": "reused", "draws_globally": True})
    fields: dict[str, Any] = {"episodes": {"horizon": "limit"}, "steps_per_actor": 1024}
    why, _ = told(shared, **fields, envs_per_actor=2)
    assert "global random generators of Python or NumPy" in why
    assert "set envs_per_actor to 1" in why
    assert not any("envs_per_actor" in line for line in told(shared, **fields))


@pytest.mark.parametrize(("horizon", "is_told"), [(64, True), (1000, False), ("limit", False)])
def test_returns_of_episodes_that_are_cut_are_told(horizon: int | str, is_told: bool) -> None:
    keeps = HOPPER.model_copy(update={"keeps_state": True})
    lines = told(keeps, episodes={"horizon": horizon})
    assert [line for line in lines if "cut after 64 steps" in line] == lines
    assert bool(lines) is is_told


def test_rollouts_as_long_as_an_episode_need_no_word() -> None:
    assert told(HOPPER, steps_per_actor=1000) == []
    assert told(HOPPER.model_copy(update={"max_episode_steps": None})) == []


def test_on_a_cpu_the_time_that_images_take_is_told_and_what_is_quicker() -> None:
    about, quicker = told(IMAGES)
    # 30 passes at 1,700 samples/s; each of two cores takes 1,000 steps/s
    rounds_s = [50 * actors * 256 * (30 / 1700 + 1 / 2000) for actors in (8, 64)]
    spec = JobSpec()
    games_s = 50 // spec.evaluation.every_rounds * spec.evaluation.episodes * 2_000 / 2_000
    assert games_s > 0
    takes = time_on_cpu(spec, IMAGES, resolve_for(spec, IMAGES), rounds=50, cores=2)
    assert takes is not None
    expected = [each + games_s for each in rounds_s]
    assert [takes.least_s, takes.most_s] == pytest.approx(expected)
    assert f"about {duration(expected[0])} to {duration(expected[1])}" in about
    assert "--preset standard --scaling fixed:8 --actors 8 --steps-per-actor 128" in quicker


def test_what_is_quicker_takes_minutes_and_is_not_told_again() -> None:
    (about,) = told(IMAGES, **QUICK)
    assert "about 4 min" in about


def test_of_small_images_no_time_is_told() -> None:
    small = IMAGES.observation.model_copy(update={"shape": (3, 48, 48)})
    assert told(IMAGES.model_copy(update={"observation": small})) == []


def test_with_a_gpu_or_without_images_no_time_is_told() -> None:
    assert told(IMAGES, cores=None) == []
    assert len(told(HOPPER)) == 1


def test_a_dry_run_says_it_beside_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    described(JobSpec(), here=True)
    assert "episodes may last 1,000 steps" in capsys.readouterr().err


def test_steps_too_slow_for_a_function_are_told_with_what_suits() -> None:
    slow = HOPPER.model_copy(update={"step_s": 0.5})
    (line,) = [each for each in told(slow, steps_per_actor=256) if "a step takes" in each]
    assert "0.5 s" in line
    assert "256 steps take 2 min 08 s" in line
    assert "--steps-per-actor 90" in line
    fast = HOPPER.model_copy(update={"step_s": 0.1})
    assert not any("a step takes" in each for each in told(fast, steps_per_actor=256))
