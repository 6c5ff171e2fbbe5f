"""The actor as Lambda will run it."""

import re

from tests.cdk.template import Synthesised, Variant, text


def test_the_function_is_the_papers(synthesised: Synthesised) -> None:
    actor = synthesised.named("AWS::Lambda::Function", "Actor")
    assert actor["PackageType"] == "Image"
    assert actor["Architectures"] == ["x86_64"]
    assert (actor["MemorySize"], actor["Timeout"]) == (1024, 60)
    assert "ReservedConcurrentExecutions" not in actor, "no new account has enough to reserve"


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


def test_the_alias_costs_nothing_while_it_waits(synthesised: Synthesised) -> None:
    alias = synthesised.only("AWS::Lambda::Alias")
    assert alias["Name"] == "live"
    assert "ActorFunctionCurrentVersion" in text(alias["FunctionVersion"])
    assert "ProvisionedConcurrencyConfig" not in alias
    version = synthesised.only("AWS::Lambda::Version")
    assert "ProvisionedConcurrencyConfig" not in version


def test_size_and_cap_follow_the_configuration(variant: Variant) -> None:
    stack = variant(
        actor_memory_mb=1769, actor_timeout_s=120, actor_concurrency=9, provisioned_concurrency=8
    )
    actor = stack.named("AWS::Lambda::Function", "Actor")
    assert (actor["MemorySize"], actor["Timeout"]) == (1769, 120)
    assert actor["ReservedConcurrentExecutions"] == 9
    scaler = stack.named("AWS::ECS::TaskDefinition", "Scaler")
    environment = scaler["ContainerDefinitions"][0]["Environment"]
    assert {"Name": "NITRO_LAMBDA_RESERVED_CONCURRENCY", "Value": "9"} in environment
