"""What a job may say, and how it is told what it may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from shared.job_spec import JobSpec


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
        ({"stop": {"budget_usd": 0}}, "stop.budget_usd", "greater than 0"),
        ({"stop": {"budget_usd": float("nan")}}, "stop.budget_usd", "finite"),
        ({"seed": "7"}, "seed", "valid integer"),
        ({"seed": True}, "seed", "valid integer"),
        ({"hyperparameters": {"clip_range": 0.2}}, "hyperparameters.clip_range", "not permitted"),
        ({"hyperparameters": {"clip": -1}}, "hyperparameters.clip", "greater than 0"),
        ({"scaling": {"policy": "magic"}}, "scaling", "'nitro', 'fixed'"),
        ({"steps_per_actor": 10, "envs_per_actor": 3}, "", "multiple of envs_per_actor (3)"),
        (
            {"scaling": {"policy": "fixed", "num_actors": 100}},
            "",
            "num_actors (100) must lie inside actors [8, 64]",
        ),
        ({"stop": {"budget_usd": True}}, "stop.budget_usd", "valid number"),
        ({"stop": {"target_return": "200"}}, "stop.target_return", "valid number"),
        ({"scaling": {"policy": "nitro", "decay": "1"}}, "scaling.nitro.decay", "valid number"),
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
