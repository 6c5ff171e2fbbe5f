"""A stack without a GPU, deployed into the emulated account: it trains, and knows of no machine."""

import boto3
import pytest

from nitro.client.client import NitroClient
from nitro.errors import CommandError
from tests.cdk.deployed_containers import Cdk, Machine, cluster, explained, resource, task
from tests.compose.waiting import has_ended, wait_for, wait_job
from tests.e2e.runs import tiny

pytestmark = pytest.mark.deploy

DEPLOYMENT: dict[str, list[str]] = {"learner_instance_types": []}


def _num_learners() -> int:
    service = resource("CpuLearnerService", "AWS::ECS::Service")
    answer = boto3.client("ecs").describe_services(cluster=cluster(), services=[service])
    return int(answer["services"][0]["desiredCount"])


def test_a_job_trains_on_cores_and_one_that_wants_a_gpu_is_refused(
    deployed: Cdk, api: NitroClient, on_docker: Machine
) -> None:
    with pytest.raises(CommandError, match="L-DB2E81BA"):
        api.submit(tiny(learner="gpu"))
    job_id = api.submit(tiny(learner="auto", warm="reuse")).job_id
    with explained(on_docker):
        wait_for("capacity", lambda: _num_learners() or None)
        service = resource("CpuLearnerService", "AWS::ECS::Service")
        learner = on_docker.start(task(cluster(), service))
        job = wait_job(api, job_id, has_ended)
        assert (job.status, job.error, job.progress.rounds) == ("succeeded", None, 4)
        wait_for("capacity to go", lambda: _num_learners() == 0 or None)
    on_docker.stop(learner)
    kinds = {
        each["ResourceType"]
        for page in boto3.client("cloudformation")
        .get_paginator("list_stack_resources")
        .paginate(StackName="nitro")
        for each in page["StackResourceSummaries"]
    }
    assert not kinds & {"AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::LaunchTemplate"}
    deployed("destroy", "--force")
