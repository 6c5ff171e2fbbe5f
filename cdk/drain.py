"""Ends a stack's tasks and machines before its deletion.

CloudFormation deletes the capacity provider first and then waits for ever for a machine that it has
left on. ECS keeps a machine for some 15 minutes after its last task, so destroying a stack soon
after a GPU job hung.
"""

import sys
import time
from collections.abc import Callable

import boto3

_SERVICE = "AWS::ECS::Service"
_CLUSTER = "AWS::ECS::Cluster"
_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_DESCRIBED_AT_ONCE = 100
_EVERY_S = 5.0
_LONGEST_S = 900.0


def drain(
    stack: str, *, region: str | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """End a stack's tasks and machines, and return when they are gone.

    Raises:
        TimeoutError: Some of them are still there after a quarter of an hour.
    """
    found = _resources(stack, region)
    until = time.monotonic() + _LONGEST_S
    told: list[str] = []
    while True:
        # An ending scaler can start one more learner, so every poll turns all off.
        left = _services_left(found, region) + _tasks_left(found, region)
        left += _machines_left(found, region)
        if not left:
            return
        if left != told:
            sys.stderr.write(f"waiting for {', '.join(left)} to end\n")
            told = left
        if time.monotonic() > until:
            raise TimeoutError(
                f"{', '.join(left)} did not end within {_LONGEST_S / 60:.0f} minutes"
            )
        pause(_EVERY_S)


def _resources(stack: str, region: str | None) -> dict[str, list[str]]:
    """Return physical ids by type."""
    cloud = boto3.client("cloudformation", region_name=region)
    found: dict[str, list[str]] = {_SERVICE: [], _CLUSTER: [], _GROUP: []}
    for page in cloud.get_paginator("list_stack_resources").paginate(StackName=stack):
        for resource in page["StackResourceSummaries"]:
            if resource["ResourceType"] in found:
                found[resource["ResourceType"]].append(resource["PhysicalResourceId"])
    return found


def _services_left(found: dict[str, list[str]], region: str | None) -> list[str]:
    """Turn services off; return those that still have tasks."""
    if not found[_SERVICE]:
        return []
    client = boto3.client("ecs", region_name=region)
    (cluster,) = found[_CLUSTER]
    answer = client.describe_services(cluster=cluster, services=found[_SERVICE])
    left = []
    for service in answer["services"]:
        if service["status"] != "ACTIVE":
            continue
        if service["desiredCount"]:
            client.update_service(cluster=cluster, service=service["serviceName"], desiredCount=0)
        if service["desiredCount"] or service["runningCount"] or service["pendingCount"]:
            left.append(f"service {service['serviceName']}")
    return left


def _tasks_left(found: dict[str, list[str]], region: str | None) -> list[str]:
    """Stop the cluster's standalone tasks; return those that are still there."""
    client = boto3.client("ecs", region_name=region)
    left = []
    for cluster in found[_CLUSTER]:
        arns = [
            arn
            for status in ("RUNNING", "STOPPED")
            for page in client.get_paginator("list_tasks").paginate(
                cluster=cluster, desiredStatus=status
            )
            for arn in page["taskArns"]
        ]
        for first in range(0, len(arns), _DESCRIBED_AT_ONCE):
            some = arns[first : first + _DESCRIBED_AT_ONCE]
            for task in client.describe_tasks(cluster=cluster, tasks=some)["tasks"]:
                if task["desiredStatus"] != "STOPPED":
                    client.stop_task(cluster=cluster, task=task["taskArn"], reason="stack goes")
                if task["lastStatus"] != "STOPPED":
                    left.append(f"task {task['taskArn'].rpartition('/')[2]}")
    return left


def _machines_left(found: dict[str, list[str]], region: str | None) -> list[str]:
    """Turn groups of machines off; return those machines that are still there."""
    if not found[_GROUP]:
        return []
    client = boto3.client("autoscaling", region_name=region)
    groups = client.describe_auto_scaling_groups(AutoScalingGroupNames=found[_GROUP])
    left = []
    for group in groups["AutoScalingGroups"]:
        if group["DesiredCapacity"]:
            client.update_auto_scaling_group(
                AutoScalingGroupName=group["AutoScalingGroupName"], MinSize=0, DesiredCapacity=0
            )
        left += [f"machine {instance['InstanceId']}" for instance in group["Instances"]]
    return left
