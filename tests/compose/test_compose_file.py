"""docker-compose.yml and the Dockerfiles beside the settings they set; needs no Docker."""

import re
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from functions.actor.settings import Settings as ActorSettings
from functions.lambda_settings import LambdaSettings
from services.emulator.settings import Settings as EmulatorSettings
from services.learner.settings import LearnerSettings
from services.scaler.settings import Settings as ScalerSettings
from tests.compose.images import DOCKERFILES
from tests.compose.wheelhouse import ROOT

SETTINGS: dict[str, type[BaseSettings]] = {
    "actor": ActorSettings,
    "gradient": LambdaSettings,
    "scaler": ScalerSettings,
    "emulator": EmulatorSettings,
    "learner": LearnerSettings,
    "cpu-learner": LearnerSettings,
}
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
)["services"]
_VARIABLE = re.compile(r"^(?:ENV|   ) ?(NITRO_\w+)=([^\s$]\S*)", re.MULTILINE)


def variables(deployable: str) -> dict[str, str]:
    """Return what the image and then the compose file set, of our own variables."""
    image = {"cpu-learner": "learner", "gradient": "actor"}.get(deployable, deployable)
    dockerfile = (ROOT / DOCKERFILES[image]).read_text(encoding="utf-8")
    composed = SERVICES[deployable]["environment"]
    return {
        **dict(_VARIABLE.findall(dockerfile)),
        **{name: value for name, value in composed.items() if name.startswith("NITRO_")},
    }


@pytest.mark.parametrize("deployable", SETTINGS)
def test_every_variable_is_a_setting_and_every_value_is_accepted(
    deployable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS[deployable]
    prefix = settings.model_config["env_prefix"]
    given = variables(deployable)
    assert given
    for name, value in given.items():
        field, _, _below = name.removeprefix(prefix).lower().partition("__")
        assert field in settings.model_fields, name
        monkeypatch.setenv(name, value)
    settings()


def test_what_serves_others_listens_on_every_address_of_its_container() -> None:
    for deployable, name in (
        ("scaler", "NITRO_HOST"),
        ("learner", "NITRO_HOST"),
        ("emulator", "NITRO_EMULATOR_HOST"),
        ("emulator", "NITRO_EMULATOR_RUNTIME_HOST"),
    ):
        assert variables(deployable)[name] == "0.0.0.0"


def test_the_gradient_function_is_the_actors_image_and_polls_a_port_of_its_own() -> None:
    actor, gradient = SERVICES["actor"], SERVICES["gradient"]
    assert gradient["image"] == actor["image"]
    assert gradient["command"] == [variables("emulator")["NITRO_EMULATOR_SECOND__HANDLER"]]
    ports = [each["environment"]["AWS_LAMBDA_RUNTIME_API"] for each in (actor, gradient)]
    second = variables("emulator")["NITRO_EMULATOR_SECOND__RUNTIME_PORT"]
    assert ports == ["emulator:9001", f"emulator:{second}"]
    named = {
        gradient["environment"]["AWS_LAMBDA_FUNCTION_NAME"],
        variables("emulator")["NITRO_EMULATOR_SECOND__NAME"],
        variables("scaler")["NITRO_GRADIENT_FUNCTION"],
    }
    assert len(named) == 1
    assert gradient["networks"] == actor["networks"]


def test_the_two_learners_differ_in_the_jobs_they_take_and_in_the_device() -> None:
    learner, on_cores = SERVICES["learner"], SERVICES["cpu-learner"]
    assert variables("learner")["NITRO_LEARNER_KIND"] == "gpu"
    own = {"NITRO_LEARNER_KIND": "cpu", "NITRO_DEVICE": "cpu"}
    assert on_cores == {**learner, "environment": {**learner["environment"], **own}}


def test_only_the_scaler_is_published_and_only_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"scaler": ["127.0.0.1:${NITRO_API_PORT:-8080}:8080"]}
