import json

import pytest

from nitro.errors import CommandError
from nitro.spec.dry_run import described
from nitro.spec.fit import require_fit
from shared.contracts.environment_spec import (
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.hyperparameters.presets import complete_sets


def shown(spec: JobSpec) -> dict[str, object]:
    values: dict[str, object] = json.loads(described(spec, here=False))["hyperparameters"]
    return values


def test_every_hyperparameter_is_resolved() -> None:
    spec = JobSpec(hyperparameters={"clip": 0.1})
    assert json.loads(described(spec, here=False))["env_id"] == "Hopper-v5"
    assert set(shown(spec)) == set(PpoHyperparameters.model_fields)
    assert shown(spec)["clip"] == 0.1


@pytest.mark.parametrize("algorithm", ["ppo", "impact", "impala"])
def test_a_preset_that_is_another_one_for_images_is_shown_as_such(algorithm: str) -> None:
    spec = JobSpec.model_validate(
        {"env_id": "ALE/Qbert-v5", "algorithm": algorithm, "preset": "standard"}
    )
    expected = complete_sets(images=True)[spec.algorithm, "standard"]
    assert shown(spec) == expected.model_dump(mode="json")


def test_an_environment_that_is_not_here_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    spec = JobSpec(env_id="Nowhere-v0", preset="standard")
    assert shown(spec) == STANDARD.model_dump(mode="json")
    said = capsys.readouterr().err
    assert "those for vectors" in said
    assert "Nowhere-v0" in said


def test_an_environment_that_this_machine_lacks_is_refused_where_it_would_train_here() -> None:
    with pytest.raises(CommandError, match="'Nowhere-v0' is no registered environment"):
        described(JobSpec(env_id="Nowhere-v0"), here=True)


def test_values_that_do_not_go_together_are_refused_by_the_preset_that_is_meant() -> None:
    games = JobSpec(
        env_id="ALE/Qbert-v5",
        algorithm="impala",
        preset="standard",
        hyperparameters={"learning_rate_decay": "linear"},
    )
    assert shown(games)["learning_rate_decay"] == "linear"
    poles = games.model_copy(update={"env_id": "CartPole-v1"})
    with pytest.raises(CommandError, match="hyperparameters: kl_target would undo") as caught:
        described(poles, here=True)
    assert "preset for vectors" in str(caught.value)


def test_an_algorithm_that_cannot_learn_the_environment_is_refused_as_by_the_scaler() -> None:
    spec = JobSpec(env_id="CartPole-v1", algorithm="sac", preset="standard")
    with pytest.raises(CommandError, match="^algorithm: sac cannot learn CartPole-v1, which has"):
        described(spec, here=True)


def test_a_search_of_more_actors_than_episodes_is_refused() -> None:
    scaling = {"policy": "schedule", "num_actors": [8, 40]}
    spec = JobSpec.model_validate({"env_id": "CartPole-v1", "algorithm": "ars", "scaling": scaling})
    with pytest.raises(CommandError, match=r"scaling.num_actors.1 \(40\) must lie inside"):
        described(spec, here=True)


def test_only_a_job_on_this_machine_has_this_machines_time_limit_of_actors() -> None:
    slow = EnvironmentSpec(
        env_id="Slow-v0",
        observation=ObservationSpec(shape=(4,), dtype="float32"),
        action=DiscreteActionSpec(n=2),
        max_episode_steps=100,
        versions={},
        step_s=1000.0,
    )
    spec = JobSpec.model_validate({"env_id": "Slow-v0", "algorithm": "ars"}).resolved()
    with pytest.raises(CommandError, match="or actor_timeout_s"):
        require_fit(spec, slow, here=True)
    require_fit(spec, slow, here=False)
