"""The actor and the dead-man switch as Lambda will run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cdk.template import Synthesised, text


def test_the_function_is_the_papers(synthesised: Synthesised) -> None:
    actor = synthesised.named("AWS::Lambda::Function", "Actor")
    assert actor["PackageType"] == "Image"
    assert actor["Architectures"] == ["x86_64"]
    assert (actor["MemorySize"], actor["Timeout"]) == (1024, 60)
    assert "ReservedConcurrentExecutions" not in actor, "no new account has enough to reserve"


def test_the_gradient_function_is_the_actors_image_with_another_command(
    synthesised: Synthesised,
) -> None:
    actor = synthesised.named("AWS::Lambda::Function", "Actor")
    gradient = synthesised.named("AWS::Lambda::Function", "Gradient")
    assert text(gradient["Code"]) == text(actor["Code"])
    assert gradient["ImageConfig"] == {"Command": ["functions.gradient.handler.handler"]}
    assert (gradient["MemorySize"], gradient["Timeout"]) == (1769, 15)
    assert gradient["VpcConfig"] == actor["VpcConfig"], "no network but the cache"


def test_nothing_is_retried_behind_the_scalers_back(synthesised: Synthesised) -> None:
    rules = {
        re.sub("^.*ActorLive.*$", "live", text(rule["Qualifier"])): rule
        for name, rule in synthesised.of_type("AWS::Lambda::EventInvokeConfig").items()
        if name.startswith("Actor")
    }
    assert rules.keys() == {"$LATEST", "live"}
    for rule in rules.values():
        assert rule["MaximumRetryAttempts"] == 0
        assert rule["MaximumEventAgeInSeconds"] == 60


@pytest.mark.parametrize("name", ["Actor", "Gradient"])
def test_the_alias_costs_nothing_while_it_waits(synthesised: Synthesised, name: str) -> None:
    alias = synthesised.named("AWS::Lambda::Alias", name)
    assert alias["Name"] == "live"
    assert f"{name}FunctionCurrentVersion" in text(alias["FunctionVersion"])
    assert "ProvisionedConcurrencyConfig" not in alias
    version = synthesised.named("AWS::Lambda::Version", name)
    assert "ProvisionedConcurrencyConfig" not in version


def test_size_and_cap_follow_the_configuration(changed: Synthesised) -> None:
    actor = changed.named("AWS::Lambda::Function", "Actor")
    assert (actor["MemorySize"], actor["Timeout"]) == (1769, 120)
    assert actor["ReservedConcurrentExecutions"] == 9
    scaler = changed.named("AWS::ECS::TaskDefinition", "Scaler")
    environment = scaler["ContainerDefinitions"][0]["Environment"]
    assert {"Name": "NITRO_LAMBDA_RESERVED_CONCURRENCY", "Value": "9"} in environment


def _package(stack: Synthesised) -> Path:
    code = stack.named("AWS::Lambda::Function", "DeadMan")["Code"]
    return stack.folder / f"asset.{Path(code['S3Key']).stem}"


def test_the_switchs_package_is_the_switch_and_nothing_else(synthesised: Synthesised) -> None:
    folder = _package(synthesised)
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "functions/__init__.py",
        "functions/dead_man/__init__.py",
        "functions/dead_man/handler.py",
    }


def test_lambda_finds_the_switchs_handler_in_its_package(synthesised: Synthesised) -> None:
    module, _, name = synthesised.named("AWS::Lambda::Function", "DeadMan")["Handler"].rpartition(
        "."
    )
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {module} as m; assert callable(m.{name}); print(m.__file__)",
        ],
        cwd=_package(synthesised),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(_package(synthesised))


def test_the_switch_is_called_every_minute(synthesised: Synthesised) -> None:
    rule = synthesised.only("AWS::Events::Rule")
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 minute)", "ENABLED")
    (target,) = rule["Targets"]
    assert text(target["Arn"]).startswith("<DeadManFunction")


def test_the_switch_needs_nothing_that_could_be_broken_with_the_rest(
    synthesised: Synthesised,
) -> None:
    switch = synthesised.named("AWS::Lambda::Function", "DeadMan")
    assert "VpcConfig" not in switch
    assert "Layers" not in switch
