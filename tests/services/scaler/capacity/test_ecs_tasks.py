"""Tasks of learners in an emulated ECS: run, found again, stopped."""

from collections.abc import Iterator

import boto3
import pytest

from services.scaler.capacity.ecs_tasks import EcsTasks, LearnerCapacityError, LearnerTasks
from services.scaler.capacity.tasks import FoundTask
from shared.contracts.learner_task import LearnerTask

REGION = "us-east-1"
CLUSTER = "nitro-tasks"


@pytest.fixture
def ecs(aws: str) -> Iterator[EcsTasks]:
    """A cluster with a family for each kind of learner, and one of somebody else."""
    del aws
    client = boto3.client("ecs", REGION)
    client.create_cluster(clusterName=CLUSTER)
    for family in ("cpu-learner", "gpu-learner", "scaler"):
        client.register_task_definition(
            family=family,
            containerDefinitions=[{"name": "learner", "image": "x", "memory": 1}],
        )
    deployed = LearnerTasks(
        cluster=CLUSTER,
        families={"cpu": "cpu-learner", "gpu": "gpu-learner"},
        subnets={"cpu": ["subnet-1"], "gpu": ["subnet-1", "subnet-2"]},
        security_group="sg-1",
        gpu_provider="machines",
    )
    tasks = EcsTasks(deployed, region=REGION, timeout_s=5.0)
    yield tasks
    tasks.close()
    for arn in client.list_tasks(cluster=CLUSTER)["taskArns"]:
        client.stop_task(cluster=CLUSTER, task=arn)


def _task(arn: str) -> dict[str, object]:
    (found,) = boto3.client("ecs", REGION).describe_tasks(cluster=CLUSTER, tasks=[arn])["tasks"]
    return dict(found)


def test_a_task_is_told_its_job_and_found_by_it_until_it_is_stopped(ecs: EcsTasks) -> None:
    arn = ecs.run("cpu", "hopper-1", 1, LearnerTask())
    boto3.client("ecs", REGION).run_task(
        cluster=CLUSTER, taskDefinition="scaler", launchType="FARGATE"
    )
    assert ecs.found() == (FoundTask(arn=arn, job_id="hopper-1"),)
    made = _task(arn)
    assert made["launchType"] == "FARGATE"
    assert made["overrides"] == {
        "containerOverrides": [
            {"name": "learner", "environment": [{"name": "NITRO_JOB_ID", "value": "hopper-1"}]}
        ]
    }
    ecs.stop(arn, "its job is over")
    assert ecs.found() == ()


def test_a_job_may_have_a_task_of_another_size_and_on_spot(ecs: EcsTasks) -> None:
    made = _task(ecs.run("cpu", "hopper-1", 1, LearnerTask(cpu=4, spot=True)))
    overrides = made["overrides"]
    assert isinstance(overrides, dict)
    assert (overrides["cpu"], overrides["memory"]) == ("4096", "8192")
    assert made["capacityProviderName"] == "FARGATE_SPOT"


def test_more_tasks_than_ecs_describes_at_once_are_all_found(ecs: EcsTasks) -> None:
    asked = {ecs.run("cpu", f"job-{n}", 1, LearnerTask()) for n in range(101)}
    assert {task.arn for task in ecs.found()} == asked


def test_what_ecs_refuses_is_told(ecs: EcsTasks) -> None:
    # A machine with a GPU has not come yet: moto, unlike ECS, does not let a task wait for it.
    with pytest.raises(LearnerCapacityError, match=CLUSTER):
        ecs.run("gpu", "hopper-1", 1, LearnerTask())
    with pytest.raises(LearnerCapacityError, match=CLUSTER):
        ecs.stop("no-such-task", "x")
