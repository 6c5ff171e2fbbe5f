"""What `nitro train` trains where little is said, and that what is said holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.spec.spec_file import parsed_assignments
from nitro.spec.starting_job import starting_job
from nitro.spec.total_steps import planned_steps
from nitro.spec.train_spec import train_spec
from services.scaler.jobs.fit import search_errors
from shared.contracts.going_on import resized
from shared.contracts.job_spec import JobSpec
from shared.contracts.stop_rule import MAX_ROUNDS
from tests.services.scaler.lambda_endpoint import HOPPER


def said(*assignments: str, total_steps: int | None = None, **options: JsonValue) -> JobSpec:
    given = {**options, **parsed_assignments(assignments)}
    return train_spec(options=given, total_steps=total_steps)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 1_000_000),
        ({"env_id": "CartPole-v1"}, 200_000),
        ({"env_id": "ALE/Pong-v5"}, 1_000_000),
        ({"algorithm": "impact"}, 1_000_000),
        ({"actors": {"min": 3, "max": 9}}, 1_000_000),
        ({"steps_per_actor": 512}, 1_000_000),
    ],
)
def test_a_job_makes_the_usual_steps_and_is_evaluated_some_twenty_times(
    options: dict[str, JsonValue], steps: int
) -> None:
    spec = train_spec(options=options)
    assert spec.preset == "standard"
    planned = planned_steps(spec)
    assert planned is not None
    assert steps <= planned < 1.01 * steps
    assert 17 <= spec.stop.max_rounds / spec.evaluation.every_rounds <= 20


def test_the_presets_batch_does_not_depend_on_the_number_of_actors() -> None:
    for actors in (1, 2, 8):
        scaling: JsonValue = {"policy": "fixed", "num_actors": actors}
        assert actors * said(scaling=scaling).steps_of(actors) == 2048


def test_some_environments_begin_from_values_of_their_own_which_the_job_names() -> None:
    usual = said(env_id="CartPole-v1")
    assert usual.hyperparameters == {"observation_normalisation": False}
    other = said("hyperparameters.observation_normalisation=true", env_id="CartPole-v1")
    assert other.hyperparameters == {"observation_normalisation": True}
    assert said(env_id="CartPole-v1", preset="paper").hyperparameters == {}
    assert said(env_id="CartPole-v1", algorithm="impala").hyperparameters == {}
    for env_id in ("Pendulum-v1", "Pusher-v5"):
        assert said(env_id=env_id).hyperparameters == {"learning_rate": 1e-3}
    assert said(env_id="Swimmer-v5").hyperparameters == {"observation_normalisation": False}
    for env_id in ("Hopper-v5", "MountainCarContinuous-v0", "ALE/Pong-v5"):
        assert said(env_id=env_id).hyperparameters == {}


def test_what_is_said_holds(tmp_path: Path) -> None:
    spec = said("stop.max_rounds=7", "evaluation.every_rounds=0", steps_per_actor=64)
    assert (spec.stop.max_rounds, spec.evaluation.every_rounds, spec.steps_per_actor) == (7, 0, 64)
    assert said(total_steps=10_000).stop.max_rounds == 5
    with pytest.raises(CommandError, match="--total-steps: give it or --rounds, not both"):
        said("stop.max_rounds=7", total_steps=10_000)
    # How many steps its rounds have is decided in each of them.
    varying = said(scaling={"policy": "nitro"}, steps_per_actor=256)
    assert varying.stop.max_rounds == JobSpec().stop.max_rounds
    marginal = said(scaling={"policy": "marginal"})
    assert (marginal.steps_per_actor, marginal.samples_per_round) == (256, None)


def test_steps_that_end_a_job_are_given_enough_rounds() -> None:
    assert said("stop.max_env_steps=10000").stop.max_rounds == 5
    assert said("stop.max_env_steps=10000", preset="paper").stop.max_rounds == MAX_ROUNDS
    search = said("stop.max_env_steps=10000", algorithm="ars").stop
    assert (search.max_rounds, search.ending_steps) == (MAX_ROUNDS, 10_000)
    both = said("stop.max_env_steps=10000", "stop.max_rounds=7", algorithm="ars").stop
    assert (both.max_rounds, both.ending_steps) == (7, None)


@pytest.mark.parametrize("algorithm", ["ars", "es"])
def test_a_search_begins_with_its_tasks_values_and_actors_that_play_in_time(algorithm: str) -> None:
    for env_id in ("Swimmer-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "CartPole-v1"):
        spec = said(env_id=env_id, algorithm=algorithm)
        usual = starting_job(env_id, algorithm)
        assert spec.scaling.asked_for() == {"num_actors": usual.num_actors}
        assert spec.stop.ending_steps == usual.total_steps
        environment = HOPPER.model_copy(update={"env_id": env_id})
        assert not [*search_errors(resized(spec, environment), environment, timeout_s=60.0)]
    humanoid = said(env_id="Humanoid-v5", algorithm="es")
    assert (humanoid.actors.min, humanoid.actors.max) == (200, 200)
    assert humanoid.hyperparameters["hidden_sizes"] == (256, 256)
    few = said(env_id="Hopper-v5", algorithm=algorithm, actors={"min": 2, "max": 6})
    assert few.scaling.asked_for() == {"num_actors": 6}


def test_a_number_of_actors_alone_is_of_the_policy_that_has_one() -> None:
    spec = said("scaling.num_actors=3")
    assert spec.scaling.model_dump(include={"policy", "num_actors"}) == {
        "policy": "fixed",
        "num_actors": 3,
    }
    assert said("scaling.policy=random").scaling.policy == "random"


def test_the_paper_means_what_it_means_to_the_api(tmp_path: Path) -> None:
    assert said(preset="paper") == said("preset=paper") == JobSpec(preset="paper")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"seed": 3, "preset": "paper", "actors": {"min": 4, "max": 4}}))
    posted = JobSpec.model_validate_json(file.read_text())
    assert train_spec(file=file, options={}) == posted
    longer = train_spec(file=file, options={}, total_steps=10_240)
    assert longer.stop.max_rounds == 10
    assert longer.model_copy(update={"stop": posted.stop}) == posted


@pytest.mark.parametrize(
    "fields", [{"env_id": "CartPole-v1"}, {"seed": 3, "actors": {"min": 4, "max": 4}}]
)
def test_a_file_means_what_the_same_options_mean(fields: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(fields))
    assert train_spec(file=file, options={}) == train_spec(options=fields)
    assert train_spec(file=file, options={}).preset == "standard"


def test_a_job_that_nothing_would_train_is_refused_with_what_it_is_for() -> None:
    with pytest.raises(CommandError, match=r"nitro\.ActorPool"):
        said(learner="external")


def test_on_this_machine_a_job_has_no_cap_unless_one_is_given() -> None:
    assert train_spec(options={}).stop.is_capped
    assert not train_spec(options={}, here=True).stop.is_capped
    given = train_spec(options={"stop.budget_usd": 0.5}, here=True)
    assert (given.stop.budget_usd, given.stop.is_capped) == (0.5, True)
