"""Scaler and learners as ECS will run them, and the machine below the one with a GPU."""

import json
from typing import Any

import pytest

from cdk.containers import REPOSITORY
from shared.money.prices import AWS_US_EAST_1_2026_11 as PRICES
from shared.money.prices import RETIRED_INSTANCES
from tests.cdk.template import Synthesised, Variant, text

_CPU = {"TORCH_BUILD": "cpu", "TORCH_INDEX_URL": ""}
_SERVICES = ("Scaler", "Learner", "CpuLearner")


def _container(stack: Synthesised, service: str) -> dict[str, Any]:
    (container,) = stack.named("AWS::ECS::TaskDefinition", service)["ContainerDefinitions"]
    found: dict[str, Any] = container
    return found


def _value(stack: Synthesised, service: str, name: str) -> str:
    values = {v["Name"]: text(v["Value"]) for v in _container(stack, service)["Environment"]}
    return values[name]


@pytest.mark.parametrize("service", _SERVICES)
def test_a_container_can_do_little(synthesised: Synthesised, service: str) -> None:
    container = _container(synthesised, service)
    assert container["ReadonlyRootFilesystem"] is True
    assert container["User"] == "10001:10001"
    assert container["LinuxParameters"]["Capabilities"] == {"Drop": ["ALL"]}
    assert not container.get("Privileged", False)
    port = "8080" if service == "Scaler" else "8081"
    assert container["HealthCheck"]["Command"] == ["CMD", "alive.sh", port]


@pytest.mark.parametrize("service", _SERVICES)
def test_the_token_comes_from_secrets_manager(synthesised: Synthesised, service: str) -> None:
    secrets = {s["Name"]: text(s["ValueFrom"]) for s in _container(synthesised, service)["Secrets"]}
    assert secrets.pop("NITRO_TOKEN").startswith("<StoresToken")
    # Only the scaler knows viewers.
    assert secrets.keys() == ({"NITRO_VIEWER_TOKEN"} if service == "Scaler" else set())


def test_the_scaler_is_small_and_always_on(synthesised: Synthesised) -> None:
    task = synthesised.named("AWS::ECS::TaskDefinition", "Scaler")
    assert (task["Cpu"], task["Memory"]) == ("256", "512")
    service = synthesised.named("AWS::ECS::Service", "Scaler")
    assert (service["LaunchType"], service["DesiredCount"]) == ("FARGATE", 1)


def test_the_learner_asks_for_a_gpu(synthesised: Synthesised) -> None:
    container = _container(synthesised, "Learner")
    assert container["ResourceRequirements"] == [{"Type": "GPU", "Value": "1"}]
    assert "SharedMemorySize" not in container["LinuxParameters"]


def test_the_scaler_is_the_one_service_and_runs_learners_of_two_families(
    synthesised: Synthesised,
) -> None:
    assert len(synthesised.of_type("AWS::ECS::Service")) == 1
    for kind, name in (("gpu", "Learner"), ("cpu", "CpuLearner")):
        family = synthesised.named("AWS::ECS::TaskDefinition", name)["Family"]
        assert family == f"nitro-{kind}-learner"
        assert _value(synthesised, "Scaler", f"NITRO_ECS_{kind.upper()}_FAMILY") == family
    provider = _value(synthesised, "Scaler", "NITRO_ECS_GPU_PROVIDER")
    assert provider.startswith("<GpuCapacityProvider")
    assert _value(synthesised, "Scaler", "NITRO_ECS_SECURITY_GROUP").startswith("<NetworkLearner")
    near, both = (
        json.loads(_value(synthesised, "Scaler", f"NITRO_ECS_{name}"))
        for name in ("SUBNETS", "GPU_SUBNETS")
    )
    assert near == both[:1]
    assert len(both) == 2
    cluster = synthesised.only("AWS::ECS::ClusterCapacityProviderAssociations")
    assert {"FARGATE", "FARGATE_SPOT"} < {text(p) for p in cluster["CapacityProviders"]}


def test_the_learner_on_cores_is_a_fargate_task(synthesised: Synthesised, variant: Variant) -> None:
    task = synthesised.named("AWS::ECS::TaskDefinition", "CpuLearner")
    assert (task["Cpu"], task["Memory"]) == ("2048", "4096")
    assert task["RequiresCompatibilities"] == ["FARGATE"]
    larger = variant(cpu_learner_vcpu=4, cpu_learner_memory_mb=8192)
    task = larger.named("AWS::ECS::TaskDefinition", "CpuLearner")
    assert (task["Cpu"], task["Memory"]) == ("4096", "8192")
    assert _value(larger, "Scaler", "NITRO_CPU_LEARNER_VCPU") == "4"
    assert _value(larger, "Scaler", "NITRO_CPU_LEARNER_MEMORY_GB") == "8"
    assert _value(larger, "Scaler", "NITRO_GPU_LEARNER_MEMORY_GB") == "24"


def test_the_learner_on_cores_may_do_what_the_other_may_and_writes_to_the_images_volume(
    synthesised: Synthesised,
) -> None:
    gpu, cpu = (
        synthesised.named("AWS::ECS::TaskDefinition", name) for name in ("Learner", "CpuLearner")
    )
    for role in ("TaskRoleArn", "ExecutionRoleArn"):
        assert cpu[role] == gpu[role]
    (mount,) = _container(synthesised, "CpuLearner")["MountPoints"]
    dockerfile = (REPOSITORY / "services/learner/Dockerfile").read_text(encoding="utf-8")
    assert f"VOLUME {mount['ContainerPath']}\n" in dockerfile
    assert "Tmpfs" not in _container(synthesised, "CpuLearner")["LinuxParameters"]


def test_on_several_gpus_the_learner_has_a_rank_on_each(ranked: Synthesised) -> None:
    container = _container(ranked, "Learner")
    assert container["ResourceRequirements"] == [{"Type": "GPU", "Value": "4"}]
    assert container["LinuxParameters"]["SharedMemorySize"] == 1024
    assert _value(ranked, "Learner", "NITRO_LEARNER_RANKS") == "4"
    assert _value(ranked, "Scaler", "NITRO_LEARNER_INSTANCE") == "g5.12xlarge", "the dearest"


def test_there_are_never_two_scalers(synthesised: Synthesised) -> None:
    deployment = synthesised.named("AWS::ECS::Service", "Scaler")["DeploymentConfiguration"]
    assert (deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (0, 100)
    assert deployment["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}


def test_the_scaler_is_found_by_address_and_by_port(synthesised: Synthesised) -> None:
    discovery = synthesised.only("AWS::ServiceDiscovery::Service")
    assert {r["Type"] for r in discovery["DnsConfig"]["DnsRecords"]} == {"A", "SRV"}
    domain = synthesised.only("AWS::ServiceDiscovery::PrivateDnsNamespace")["Name"]
    url = _value(synthesised, "Learner", "NITRO_SCALER_URL")
    assert url == f"http://{discovery['Name']}.{domain}:8080"
    (registry,) = synthesised.named("AWS::ECS::Service", "Scaler")["ServiceRegistries"]
    assert (registry["ContainerName"], registry["ContainerPort"]) == ("scaler", 8080)


def test_as_many_machines_as_learners_may_have_one_of_the_first_type_to_be_had(
    synthesised: Synthesised, changed: Synthesised
) -> None:
    more = changed.only("AWS::AutoScaling::AutoScalingGroup")
    assert (more["MinSize"], more["MaxSize"]) == ("0", "3")
    assert _value(changed, "Scaler", "NITRO_MOST_GPU_LEARNERS") == "3"
    assert _value(changed, "Scaler", "NITRO_MOST_CPU_LEARNERS") == "7"
    group = synthesised.only("AWS::AutoScaling::AutoScalingGroup")
    assert (group["MinSize"], group["MaxSize"]) == ("0", "1")
    policy = group["MixedInstancesPolicy"]
    assert [o["InstanceType"] for o in policy["LaunchTemplate"]["Overrides"]] == [
        "p3.2xlarge",
        "g6.2xlarge",
        "g5.2xlarge",
        "g4dn.2xlarge",
    ]
    assert policy["InstancesDistribution"]["OnDemandAllocationStrategy"] == "prioritized"
    provider = synthesised.only("AWS::ECS::CapacityProvider")["AutoScalingGroupProvider"]
    assert provider["ManagedScaling"]["Status"] == "ENABLED"
    assert provider["ManagedDraining"] == "ENABLED"


def test_the_machine_keeps_its_role_and_its_disk_to_itself(synthesised: Synthesised) -> None:
    data = synthesised.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    assert data["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    (disk,) = data["BlockDeviceMappings"]
    assert disk["Ebs"] == {
        "Encrypted": True,
        "VolumeType": "gp3",
        "VolumeSize": 100,
        "Throughput": 500,
        "DeleteOnTermination": True,
    }
    assert "KeyName" not in data
    assert "ECS_AWSVPC_BLOCK_IMDS=true" in text(data["UserData"]["Fn::Base64"])


def test_what_the_account_does_not_offer_is_not_asked_for(offered: Synthesised) -> None:
    policy = offered.only("AWS::AutoScaling::AutoScalingGroup")["MixedInstancesPolicy"]
    overrides = policy["LaunchTemplate"]["Overrides"]
    assert [o["InstanceType"] for o in overrides] == ["g5.2xlarge", "g4dn.2xlarge"]
    data = offered.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    assert data["InstanceType"] == "g5.2xlarge"


def test_a_stack_without_a_gpu_has_no_machine(
    without_gpu: Synthesised, synthesised: Synthesised
) -> None:
    kinds = {resource["Type"] for resource in without_gpu.template["Resources"].values()}
    left_out = {resource["Type"] for resource in synthesised.template["Resources"].values()} - kinds
    assert left_out == {
        "AWS::AutoScaling::AutoScalingGroup",
        "AWS::EC2::LaunchTemplate",
        "AWS::ECS::CapacityProvider",
        "AWS::IAM::InstanceProfile",
    }
    names = {v["Name"] for v in _container(without_gpu, "Scaler")["Environment"]}
    assert not names & {"NITRO_ECS_GPU_FAMILY", "NITRO_LEARNER_INSTANCE"}


def test_a_budget_holds_whichever_machine_comes(synthesised: Synthesised) -> None:
    billed = _value(synthesised, "Scaler", "NITRO_LEARNER_INSTANCE")
    policy = synthesised.only("AWS::AutoScaling::AutoScalingGroup")["MixedInstancesPolicy"]
    can_come = [
        o["InstanceType"]
        for o in policy["LaunchTemplate"]["Overrides"]
        if o["InstanceType"] not in RETIRED_INSTANCES
    ]
    dearest = max(PRICES.learner_usd_per_hour[kind] for kind in can_come)
    assert PRICES.learner_usd_per_hour[billed] == dearest


def test_the_machine_image_is_awss_unless_one_is_named(
    synthesised: Synthesised, changed: Synthesised
) -> None:
    looked_up = [p["Default"] for p in synthesised.template["Parameters"].values()]
    assert "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id" in looked_up
    data = changed.only("AWS::EC2::LaunchTemplate")
    assert data["LaunchTemplateData"]["ImageId"] == "ami-0123456789abcdef0"


def test_session_manager_gets_two_folders_where_there_is_no_endpoint(variant: Variant) -> None:
    stack = variant(endpoint="none")
    assert stack.named("AWS::ECS::Service", "Scaler")["EnableExecuteCommand"] is True
    container = _container(stack, "Scaler")
    assert container["ReadonlyRootFilesystem"] is True
    writable = {m["ContainerPath"] for m in container["MountPoints"]}
    assert writable == {"/var/lib/amazon", "/var/log/amazon"}


def test_on_arm64_everything_but_the_gpu_machine_has_such_processors_and_prices(
    variant: Variant,
) -> None:
    stack = variant(architecture="arm64")
    for service in ("Scaler", "CpuLearner"):
        task = stack.named("AWS::ECS::TaskDefinition", service)
        assert task["RuntimePlatform"]["CpuArchitecture"] == "ARM64"
    assert stack.named("AWS::Lambda::Function", "Actor")["Architectures"] == ["arm64"]
    assets = json.loads((stack.folder / f"{stack.name}.assets.json").read_text(encoding="utf-8"))
    platforms = sorted(
        (image["source"]["dockerFile"].split("/")[1], image["source"]["platform"])
        for image in assets["dockerImages"].values()
    )
    assert platforms == [
        ("actor", "linux/arm64"),
        ("learner", "linux/amd64"),
        ("learner", "linux/arm64"),
        ("scaler", "linux/arm64"),
    ]
    assert _value(stack, "Scaler", "NITRO_PRICE_TABLE") == "aws-us-east-1-2026-11-arm64"


@pytest.mark.parametrize(
    ("given", "built"),
    [
        ("synthesised", [{"TORCH_BUILD": "cu126", "TORCH_INDEX_URL": ""}, _CPU]),
        ("offered", [{"TORCH_BUILD": "cuda", "TORCH_INDEX_URL": ""}, _CPU]),
        # Both are one then.
        ("changed", [{"TORCH_BUILD": "cpu", "TORCH_INDEX_URL": "u", "BASE_IMAGE": "b"}]),
    ],
)
def test_the_learners_images_have_kernels_for_its_machines_unless_asked_otherwise(
    request: pytest.FixtureRequest, given: str, built: list[dict[str, str]]
) -> None:
    stack: Synthesised = request.getfixturevalue(given)
    assets = json.loads((stack.folder / f"{stack.name}.assets.json").read_text(encoding="utf-8"))
    sources = [image["source"] for image in assets["dockerImages"].values()]
    arguments = [(s["dockerFile"], s.get("dockerBuildArgs", {})) for s in sources]
    learners = [given for file, given in arguments if file == "services/learner/Dockerfile"]
    assert sorted(learners, key=str, reverse=True) == sorted(built, key=str, reverse=True)
    (scalers,) = [given for file, given in arguments if file == "services/scaler/Dockerfile"]
    assert not [name for name in scalers if "TORCH" in name]
