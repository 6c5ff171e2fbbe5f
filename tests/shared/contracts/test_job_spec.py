"""What a job may say, and how it is told what it may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.job_spec import JobSpec
from shared.contracts.learner_functions import LearnerFunctions
from shared.contracts.stop_rule import MAX_ROUNDS, StopRule


def _errors(body: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(body)
    return {".".join(map(str, e["loc"])): e["msg"] for e in caught.value.errors()}


def test_defaults_are_the_papers_settings() -> None:
    spec = JobSpec()
    assert (spec.actors.min, spec.actors.max) == (8, 64)
    nitro = {"policy": "nitro", "window": 6, "decay": 0.96, "convention": "paper"}
    assert spec.scaling.model_dump() == nitro
    assert spec.steps_per_actor == 256
    assert spec.stop.max_rounds == 50


def test_a_rounds_samples_are_shared_by_its_actors() -> None:
    spec = JobSpec.model_validate({"samples_per_round": 2048, "envs_per_actor": 4})
    assert [spec.steps_of(n) for n in (8, 16, 20, 64)] == [256, 128, 100, 32]
    # Fewer than the fewest: a fragment stays as long as was checked, and the round has less.
    assert [spec.steps_of(n) for n in (0, 1, 7)] == [256] * 3
    assert JobSpec.read(spec.model_dump_json()) == spec
    assert {JobSpec().steps_of(n) for n in (1, 8, 64)} == {256}
    # The steps of an actor, of which this says nothing, need not be a multiple.
    odd = JobSpec.model_validate({"samples_per_round": 2048, "envs_per_actor": 3})
    assert [odd.steps_of(n) for n in (8, 64)] == [255, 30]


def test_a_spec_survives_json() -> None:
    spec = JobSpec.model_validate(
        {"env_id": "CartPole-v1", "scaling": {"policy": "fixed", "num_actors": 16}, "seed": 3}
    )
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"env_id": "os:system"}, "env_id", "pattern"),
        ({"env_id": ""}, "env_id", "at least 1"),
        ({"enviroment": "Hopper-v5"}, "enviroment", "not permitted"),
        ({"actors": {"min": 9, "max": 3}}, "actors", "min (9) must not exceed max (3)"),
        ({"actors": {"min": 0}}, "actors.min", "greater than or equal to 1"),
        ({"wrappers": [{"name": "os:system"}]}, "wrappers.0.name", "pattern"),
        ({"wrappers": [{"name": "A", "kwargs": {"f": "a/b"}}]}, "wrappers.0.kwargs", "plain"),
        ({"wrappers": [{"name": "A", "kwargs": {"f": [1]}}]}, "wrappers.0.kwargs.f", "must be"),
        ({"wrappers": [{"name": "A"}] * 9}, "wrappers", "at most 8"),
        ({"stop": {"budget_usd": 0}}, "stop.budget_usd", "greater than 0"),
        ({"stop": {"budget_usd": float("nan")}}, "stop.budget_usd", "finite"),
        ({"hyperparameters": {"clip_range": 0.2}}, "hyperparameters.clip_range", "not permitted"),
        ({"hyperparameters": {"clip": -1}}, "hyperparameters.clip", "greater than 0"),
        ({"scaling": {"policy": "magic"}}, "scaling", "one of nitro, fixed"),
        ({"steps_per_actor": 10, "envs_per_actor": 3}, "", "multiple of envs_per_actor (3)"),
        ({"episodes": {"horizon": "soon"}}, "episodes.horizon", "must be limit, fragment or"),
        ({"episodes": {"horizon": 0}}, "episodes.horizon", "from 1, got 0"),
        ({"episodes": {"horizon": True}}, "episodes.horizon", "from 1, got True"),
        ({"episodes": {"horizon": []}}, "episodes.horizon", "from 1, got []"),
        ({"samples_per_round": 2048, "steps_per_actor": 64}, "", "not both"),
        ({"samples_per_round": 2048, "algorithm": "impact"}, "", "give steps_per_actor"),
        ({"samples_per_round": 127, "envs_per_actor": 2}, "", "at least actors.max"),
        (
            {"scaling": {"policy": "fixed", "num_actors": 100}},
            "",
            "num_actors (100) must lie inside actors [8, 64]",
        ),
        ({"hyperparameters": {"discount": "0.9"}}, "hyperparameters.discount", "valid number"),
        ({"hyperparameters": {"clip": True}}, "hyperparameters.clip", "valid number"),
        (
            {"hyperparameters": {"hidden_sizes": ["a"]}},
            "hyperparameters.hidden_sizes",
            "list of whole numbers",
        ),
        ({"hyperparameters": {"clip": None}}, "hyperparameters.clip", "must be true, false"),
        ({"env_kwargs": {"render_fps": [1]}}, "env_kwargs.render_fps", "must be true, false"),
        ({"env_kwargs": {"gravity": float("nan")}}, "env_kwargs.gravity", "must be finite"),
        ({"env_kwargs": {"mode": "\ud800"}}, "env_kwargs.mode", "surrogates not allowed"),
    ],
)
def test_a_wrong_field_is_named(body: dict[str, Any], field: str, says: str) -> None:
    errors = _errors(body)
    assert field in errors
    assert says in errors[field]


def test_every_wrong_field_is_listed_at_once() -> None:
    errors = _errors({"seed": -1, "stop": {"max_rounds": 0}, "nonsense": 1})
    assert set(errors) == {"seed", "stop.max_rounds", "nonsense"}


def test_tasks_name_the_environment_with_everything_that_makes_it() -> None:
    environment = {
        "env_id": "CartPole-v1",
        "env_kwargs": {"max_episode_steps": 7},
        "wrappers": [{"name": "FrameStackObservation", "kwargs": {"stack_size": 2}}],
    }
    spec = JobSpec.model_validate({**environment, "seed": 3})
    assert spec.environment_ref == EnvironmentRef.model_validate(environment)


def test_only_algorithms_that_learn_off_policy_keep_several_rounds_open() -> None:
    assert JobSpec().open_rounds == 1
    assert JobSpec.model_validate({"algorithm": "impact"}).open_rounds == 2
    spec = {"algorithm": "impala", "rounds_in_flight": 4}
    assert JobSpec.model_validate(spec).open_rounds == 4
    for wrong in (0, 9, 2.0, True):
        assert "rounds_in_flight" in _errors({**spec, "rounds_in_flight": wrong})


def test_a_rounds_policy_lacks_the_rounds_still_open_before_it() -> None:
    assert [JobSpec().rounds_behind(index) for index in range(4)] == [0, 1, 2, 3]
    spec = JobSpec.model_validate({"algorithm": "impala", "rounds_in_flight": 3})
    assert [spec.rounds_behind(index) for index in range(6)] == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("objective", ["behaviour", "total_loss"])
def test_a_detector_of_ppos_loss_is_for_ppo(objective: str) -> None:
    detector = {"objective": objective}
    assert JobSpec.model_validate({"detector": detector}).detector.objective == objective
    for algorithm in ("impact", "impala"):
        told = _errors({"algorithm": algorithm, "detector": detector})[""]
        assert f"detector.objective ({objective}) is defined for ppo only" in told


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ({"preset": "paper"}, "provisioned"),
        ({"preset": "standard"}, "auto"),
        ({"preset": "standard", "warm": "none"}, "none"),
        ({"preset": "paper", "warm": "reuse"}, "reuse"),
    ],
)
def test_how_environments_are_warm_is_the_presets_unless_it_is_said(
    given: dict[str, object], resolved: str
) -> None:
    assert JobSpec.model_validate(given).resolved().warm == resolved


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ({"preset": "paper"}, "gpu"),
        ({"preset": "standard"}, "auto"),
        ({"preset": "standard", "learner": "gpu"}, "gpu"),
        ({"preset": "paper", "learner": "auto"}, "auto"),
    ],
)
def test_the_learner_is_the_presets_unless_it_is_said(
    given: dict[str, object], resolved: str
) -> None:
    assert JobSpec.model_validate(given).resolved().learner == resolved


def test_a_job_that_was_stored_before_it_could_say_goes_on_provisioning() -> None:
    stored = JobSpec.model_validate({"preset": "standard"})
    assert stored.warm is None
    assert stored.provisions
    assert not stored.resolved().provisions


def test_functions_do_not_learn_impala() -> None:
    with pytest.raises(ValidationError, match="use ppo or impact, or learner cpu"):
        JobSpec(algorithm="impala", learner="functions")
    assert JobSpec(algorithm="impact", learner="functions").learns_on_functions


def test_impact_keeps_its_target_policy_on_functions() -> None:
    decoupled = LearnerFunctions(objective="decoupled")
    with pytest.raises(ValidationError, match="objective .decoupled. .* use clipped, or ppo"):
        JobSpec(algorithm="impact", learner="functions", learner_functions=decoupled)
    assert JobSpec(algorithm="ppo", learner="functions", learner_functions=decoupled)


def test_a_recurrent_policy_is_not_measured_and_has_a_constant_number_of_actors() -> None:
    gru = {"hyperparameters": {"recurrent": "gru"}}
    spec = JobSpec.model_validate(gru)
    assert (spec.is_recurrent, spec.scaling.policy) == (True, "fixed")
    assert JobSpec.read(spec.model_dump_json()) == spec
    assert JobSpec.model_validate({"hyperparameters": {"recurrent": "none"}}) == JobSpec(
        hyperparameters={"recurrent": "none"}
    )
    assert not JobSpec().is_recurrent


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"scaling": {"policy": "nitro"}}, "nothing is measured of recurrent policies"),
        ({"algorithm": "sac"}, "recurrent is not for sac: use one of ppo, impact, impala"),
        ({"learner": "functions"}, "learner is functions: use cpu or gpu"),
        ({"learner": "external"}, "learner is external: use cpu or gpu"),
        ({"hyperparameters": {"recurrent": "rnn"}}, "'none', 'lstm' or 'gru'"),
        (
            {"hyperparameters": {"recurrent": "gru", "network": "gain"}},
            "leave network (gain) out",
        ),
        ({"hyperparameters": {"recurrent": "gru", "hidden_sizes": []}}, "give hidden_sizes"),
    ],
)
def test_what_does_not_go_with_a_recurrent_policy_is_refused(
    body: dict[str, Any], says: str
) -> None:
    errors = _errors({"hyperparameters": {"recurrent": "lstm"}, **body})
    assert says in " ".join(errors.values())


def test_rounds_or_steps_say_how_much_of_a_job_is_done() -> None:
    by_rounds = StopRule(max_rounds=10)
    assert (by_rounds.share_done(4, 10**9), by_rounds.of_rounds(4)) == (0.4, "4/10")
    by_steps = StopRule(max_rounds=MAX_ROUNDS, max_env_steps=1000)
    assert (by_steps.share_done(4, 250), by_steps.of_rounds(4)) == (0.25, "4")
    assert by_steps.share_done(5, 1100) == 1.0
