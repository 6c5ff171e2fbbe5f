"""Ending a stack's tasks and machines, against ECS and Auto Scaling as moto speaks them."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from cdk.drain import drain

_STACK = "nitro-to-drain"


def _service(name: str) -> dict[str, Any]:
    task = {"ContainerDefinitions": [{"Name": "c", "Image": "i", "Memory": 64}], "Family": name}
    service = {"Cluster": {"Ref": "Cluster"}, "TaskDefinition": {"Ref": f"{name}Task"}}
    return {
        f"{name}Task": {"Type": "AWS::ECS::TaskDefinition", "Properties": task},
        name: {"Type": "AWS::ECS::Service", "Properties": service | {"DesiredCount": 1}},
    }


_TEMPLATE = {
    "Resources": {
        "Cluster": {"Type": "AWS::ECS::Cluster"},
        **_service("ScalerService"),
        **_service("LearnerService"),
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {"InstanceType": "g6.2xlarge", "ImageId": "ami-12c6146b"}
            },
        },
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "AvailabilityZones": ["us-east-1a"],
                "MinSize": "1",
                "MaxSize": "1",
                "DesiredCapacity": "1",
                "LaunchTemplate": {
                    "LaunchTemplateId": {"Ref": "Template"},
                    "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                },
            },
        },
    }
}


@pytest.fixture
def stack(aws: str) -> Iterator[str]:
    del aws
    cloud = boto3.client("cloudformation")
    cloud.create_stack(StackName=_STACK, TemplateBody=json.dumps(_TEMPLATE))
    yield _STACK
    cloud.delete_stack(StackName=_STACK)


def _resources(kind: str) -> list[str]:
    found = boto3.client("cloudformation").list_stack_resources(StackName=_STACK)
    return [
        resource["PhysicalResourceId"]
        for resource in found["StackResourceSummaries"]
        if resource["ResourceType"] == kind
    ]


def _on() -> tuple[list[int], int]:
    """Return the services' desired counts, and how many machines there are."""
    (cluster,) = _resources("AWS::ECS::Cluster")
    services = boto3.client("ecs").describe_services(
        cluster=cluster, services=_resources("AWS::ECS::Service")
    )["services"]
    groups = boto3.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=_resources("AWS::AutoScaling::AutoScalingGroup")
    )["AutoScalingGroups"]
    return [s["desiredCount"] for s in services], sum(len(g["Instances"]) for g in groups)


def test_services_and_machines_end_even_if_one_is_turned_on_again(stack: str) -> None:
    assert _on() == ([1, 1], 1)
    turned_on: list[str] = []

    def pause(seconds: float) -> None:
        assert seconds > 0
        if not turned_on:  # as a scaler does that has not ended yet
            (cluster,) = _resources("AWS::ECS::Cluster")
            turned_on.extend(_resources("AWS::ECS::Service")[:1])
            boto3.client("ecs").update_service(
                cluster=cluster, service=turned_on[0], desiredCount=1
            )

    drain(stack, pause=pause)
    assert turned_on
    assert _on() == ([0, 0], 0)


def test_a_stack_that_has_neither_is_drained_at_once(aws: str) -> None:
    del aws
    cloud = boto3.client("cloudformation")
    template = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    cloud.create_stack(StackName="nothing-to-drain", TemplateBody=json.dumps(template))
    drain("nothing-to-drain", pause=lambda _: pytest.fail("there is nothing to wait for"))
    cloud.delete_stack(StackName="nothing-to-drain")
