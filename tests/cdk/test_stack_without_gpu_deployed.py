"""A stack without a GPU, deployed into the emulated account: it trains, and knows of no machine."""

import boto3
import pytest

from nitro.client.client import NitroClient
from nitro.errors import CommandError
from tests.cdk.deployed_containers import Agent, Cdk, Machine, cluster, explained
from tests.compose.waiting import has_ended, wait_for, wait_job
from tests.e2e.runs import tiny

pytestmark = pytest.mark.deploy

DEPLOYMENT: dict[str, list[str]] = {"learner_instance_types": []}


def _num_learners() -> int:
    tasks = boto3.client("ecs").list_tasks(cluster=cluster(), family="nitro-cpu-learner")
    return len(tasks["taskArns"])


def test_a_job_trains_on_cores_and_one_that_wants_a_gpu_is_refused(
    deployed: Cdk, api: NitroClient, agent: Agent, on_docker: Machine
) -> None:
    with pytest.raises(CommandError, match="L-DB2E81BA"):
        api.submit(tiny(learner="gpu"))
    job_id = api.submit(tiny(learner="auto", warm="reuse")).job_id
    search = {"algorithm": "ars", "hyperparameters": {"directions": 4}, "steps_per_actor": 256}
    fixed = {"policy": "fixed", "num_actors": 2}
    search_id = api.submit(tiny(**search, scaling=fixed, detector={}, warm="reuse")).job_id
    with explained(on_docker):
        job = wait_job(api, job_id, has_ended)
        assert (job.status, job.error, job.progress.rounds) == ("succeeded", None, 4)
        searched = wait_job(api, search_id, has_ended)
        assert (searched.status, searched.error, searched.progress.rounds) == ("succeeded", None, 4)
        wait_for("capacity to go", lambda: _num_learners() == 0 or None)
        wait_for("the learner to end", lambda: agent.ended.get(job_id) == [0] or None)
    kinds = {
        each["ResourceType"]
        for page in boto3.client("cloudformation")
        .get_paginator("list_stack_resources")
        .paginate(StackName="nitro")
        for each in page["StackResourceSummaries"]
    }
    assert not kinds & {"AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::LaunchTemplate"}
    deployed("destroy", "--force")
