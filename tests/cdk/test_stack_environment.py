"""What the stack tells a process is what the process listens to."""

from collections.abc import Iterable
from typing import Any

import pytest
from pydantic_settings import BaseSettings

from functions.actor.settings import Settings as ActorSettings
from functions.dead_man.handler import Settings as DeadManSettings
from services.learner.settings import LearnerSettings
from services.scaler.settings import Settings as ScalerSettings
from shared.money.prices import OwnPrices
from tests.cdk.template import Synthesised, text
from tests.own_prices import FRANKFURT

_THE_SDKS_OWN = {"AWS_REGION"}


def _names(settings: type[BaseSettings]) -> set[str]:
    prefix = settings.model_config["env_prefix"]
    fields = settings.model_fields.items()
    return {f"{prefix}{name.upper()}" for name, field in fields if not field.validation_alias}


def _task(stack: Synthesised, service: str) -> dict[str, str]:
    (container,) = stack.named("AWS::ECS::TaskDefinition", service)["ContainerDefinitions"]
    return {v["Name"]: text(v["Value"]) for v in container["Environment"]}


def _function(stack: Synthesised, name: str) -> dict[str, str]:
    variables = stack.named("AWS::Lambda::Function", name)["Environment"]["Variables"]
    return {key: text(value) for key, value in variables.items()}


def _secrets(stack: Synthesised, service: str) -> set[str]:
    (container,) = stack.named("AWS::ECS::TaskDefinition", service)["ContainerDefinitions"]
    return {secret["Name"] for secret in container["Secrets"]}


def _unknown(given: Iterable[str], known: set[str]) -> set[str]:
    return set(given) - known - _THE_SDKS_OWN


def test_every_variable_is_a_setting(synthesised: Synthesised) -> None:
    assert not _unknown(_task(synthesised, "Scaler"), _names(ScalerSettings))
    assert not _unknown(_secrets(synthesised, "Scaler"), _names(ScalerSettings))
    assert not _unknown(_task(synthesised, "Learner"), _names(LearnerSettings))
    on_cores = _names(LearnerSettings) | {"HOME", "TMPDIR"}
    assert not _unknown(_task(synthesised, "CpuLearner"), on_cores)
    assert not _unknown(_secrets(synthesised, "Learner"), _names(LearnerSettings))
    assert not _unknown(_function(synthesised, "Actor"), _names(ActorSettings))


def _settings(kind: type[Any], given: dict[str, str], patch: pytest.MonkeyPatch) -> Any:
    for name, value in given.items():
        patch.setenv(name, value)
    return kind()


def test_the_scaler_starts_with_what_it_is_told(
    synthesised: Synthesised, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(ScalerSettings, _task(synthesised, "Scaler"), monkeypatch)
    assert settings.store == "dynamodb"
    assert settings.ledger_clock == "wall"
    assert settings.cache_auth == "iam"
    assert settings.provisioned_concurrency == 64
    assert settings.lambda_reserved_concurrency is None
    assert settings.lambda_qualifier == "live"
    assert settings.artifacts.startswith("s3://<StoresRuns")
    assert settings.cold_starts_per_s == 100
    assert settings.longest_job_s == 48 * 3600
    assert settings.learner_wait_s == 30 * 60
    assert settings.learners["cpu"] == "Fargate task of 2 vCPU and 4 GB"
    actor = synthesised.named("AWS::Lambda::Function", "Actor")
    assert settings.lambda_timeout_s == actor["Timeout"]
    assert settings.lambda_memory_mb == actor["MemorySize"]
    gradient = synthesised.named("AWS::Lambda::Function", "Gradient")
    assert settings.gradient_timeout_s == gradient["Timeout"]
    assert settings.gradient_memory_mb == gradient["MemorySize"]


def test_the_learner_starts_with_what_it_is_told(
    synthesised: Synthesised, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(LearnerSettings, _task(synthesised, "Learner"), monkeypatch)
    assert (settings.device, settings.learner_kind) == ("cuda", "gpu")
    assert settings.cache_auth == "iam"
    assert settings.artifacts == _task(synthesised, "Scaler")["NITRO_ARTIFACTS"]


def test_the_learner_on_cores_is_told_the_same_but_for_its_kind_and_where_it_writes(
    synthesised: Synthesised, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, gpu = _task(synthesised, "CpuLearner"), _task(synthesised, "Learner")
    settings = _settings(LearnerSettings, told, monkeypatch)
    assert (settings.device, settings.learner_kind) == ("cpu", "cpu")
    differing = {name for name in told.keys() | gpu.keys() if told.get(name) != gpu.get(name)}
    assert differing == {"NITRO_DEVICE", "NITRO_LEARNER_KIND", "NITRO_RUNS_DIR", "HOME", "TMPDIR"}


def test_the_actor_starts_with_what_it_is_told(
    synthesised: Synthesised, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(ActorSettings, _function(synthesised, "Actor"), monkeypatch)
    assert settings.cache_auth == "iam"


def test_the_switch_starts_with_what_it_is_told(synthesised: Synthesised) -> None:
    told = _function(synthesised, "DeadMan")
    settings = DeadManSettings.read(told)
    scaler = _task(synthesised, "Scaler")
    assert settings.table == scaler["NITRO_TABLE"]
    assert settings.function == scaler["NITRO_LAMBDA_FUNCTION"]
    assert settings.qualifier == scaler["NITRO_LAMBDA_QUALIFIER"]
    assert settings.cluster == scaler["NITRO_ECS_CLUSTER"]
    families = (scaler["NITRO_ECS_CPU_FAMILY"], scaler["NITRO_ECS_GPU_FAMILY"])
    assert settings.families == families
    assert len(told) == 6


def test_without_a_gpu_scaler_and_switch_know_of_none(
    without_gpu: Synthesised, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(ScalerSettings, _task(without_gpu, "Scaler"), monkeypatch)
    assert (settings.has_gpu, settings.starts_learners) == (False, True)
    assert len(DeadManSettings.read(_function(without_gpu, "DeadMan")).families) == 1


def test_the_gradient_function_starts_with_what_the_actor_is_told(
    synthesised: Synthesised,
) -> None:
    assert _function(synthesised, "Gradient") == _function(synthesised, "Actor")


@pytest.mark.parametrize("role", ["scaler", "learner", "actor"])
def test_each_role_enters_the_cache_as_itself(synthesised: Synthesised, role: str) -> None:
    told = (
        _function(synthesised, "Actor")
        if role == "actor"
        else _task(synthesised, role.capitalize())
    )
    assert told["NITRO_CACHE_USER"] == f"nitro-{role}"
    assert told["NITRO_CACHE_NAME"] == "nitro"
    assert told["NITRO_CACHE_URL"].startswith("rediss://<TrajectoryCache")
    assert "@" not in told["NITRO_CACHE_URL"]


def test_another_name_is_another_deployment(changed: Synthesised) -> None:
    assert changed.name == "nitro-two"
    assert _function(changed, "Actor")["NITRO_CACHE_USER"] == "nitro-two-actor"
    assert changed.only("AWS::ElastiCache::ReplicationGroup")["ReplicationGroupId"] == "nitro-two"


def test_the_scaler_bills_by_the_prices_it_is_told(
    changed: Synthesised, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(ScalerSettings, _task(changed, "Scaler"), monkeypatch)
    assert settings.prices == OwnPrices.model_validate(FRANKFURT)
    assert settings.cost_basis().cache_usd_per_s * 3600 == pytest.approx(0.02)
    assert settings.learner_instance == "g5.2xlarge", "the dearest of those that may come"
