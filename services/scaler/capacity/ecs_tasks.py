"""The learners' tasks in ECS: list, run and stop. Calls block.

Tasks are of one family for each kind of learner. ECS runs the family's newest revision, and a task
that runs keeps its own: a deployment interrupts no job.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.capacity.tasks import FoundTask
from shared.contracts.learner_kind import MachineKind
from shared.contracts.learner_task import LearnerTask

CONTAINER = "learner"
"""The container that gets the job's id."""
_TRIES = 2
_MAX_REASON = 300
_MAX_TOKEN = 64
_DESCRIBED_AT_ONCE = 100
_SPOT = "FARGATE_SPOT"


class LearnerCapacityError(RuntimeError):
    """ECS is unreachable or refuses; the message quotes its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerTasks:
    """A deployment's resources for the learners' tasks."""

    cluster: str
    families: Mapping[MachineKind, str]
    """Family of the task definitions, by the kind of learner."""
    subnets: Mapping[MachineKind, Sequence[str]]
    security_group: str
    gpu_provider: str | None
    """Capacity provider of the machines with a GPU; None where there are none."""


class EcsTasks:
    """Runs tasks, and finds them again."""

    def __init__(self, deployed: LearnerTasks, *, region: str, timeout_s: float) -> None:
        self._deployed = deployed
        self._client = boto3.client(
            "ecs",
            region_name=region,
            config=Config(
                connect_timeout=timeout_s,
                read_timeout=timeout_s,
                retries={"total_max_attempts": _TRIES, "mode": "standard"},
            ),
        )

    def found(self) -> tuple[FoundTask, ...]:
        """Return all running and starting tasks of learners.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
        """
        with self._errors():
            arns = [arn for family in self._deployed.families.values() for arn in self._of(family)]
            described = [
                task
                for first in range(0, len(arns), _DESCRIBED_AT_ONCE)
                for task in self._described(arns[first : first + _DESCRIBED_AT_ONCE])
            ]
        return tuple(
            FoundTask(arn=task["taskArn"], job_id=task.get("startedBy", ""))
            for task in described
            if task["desiredStatus"] != "STOPPED"
        )

    def run(self, kind: MachineKind, job_id: str, number: int, size: LearnerTask) -> str:
        """Run the task of a job; return its ARN.

        Repeating a request with the same job and number returns the same task.

        Raises:
            LearnerCapacityError: ECS cannot be reached, refuses, or has no room.
        """
        with self._errors():
            answer = self._client.run_task(
                cluster=self._deployed.cluster,
                taskDefinition=self._deployed.families[kind],
                count=1,
                startedBy=job_id,
                clientToken=f"{job_id}-{number}"[-_MAX_TOKEN:],
                networkConfiguration={"awsvpcConfiguration": self._network(kind)},
                overrides=_overrides(kind, job_id, size),
                **self._where(kind, size),
            )
        if not answer["tasks"]:
            reasons = ", ".join(failure.get("reason", "?") for failure in answer["failures"])
            raise LearnerCapacityError(f"ECS runs no task: {reasons}"[:_MAX_REASON])
        return str(answer["tasks"][0]["taskArn"])

    def stop(self, arn: str, why: str) -> None:
        """Stop a task; it has two minutes to return its job.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
        """
        with self._errors():
            self._client.stop_task(cluster=self._deployed.cluster, task=arn, reason=why)

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def _of(self, family: str) -> Iterator[str]:
        pages = self._client.get_paginator("list_tasks")
        for page in pages.paginate(
            cluster=self._deployed.cluster, family=family, desiredStatus="RUNNING"
        ):
            yield from page["taskArns"]

    def _described(self, arns: Sequence[str]) -> list[Any]:
        answer = self._client.describe_tasks(cluster=self._deployed.cluster, tasks=list(arns))
        return list(answer["tasks"])

    def _network(self, kind: MachineKind) -> dict[str, Any]:
        return {
            "subnets": list(self._deployed.subnets[kind]),
            "securityGroups": [self._deployed.security_group],
            # A Fargate task pulls its own image; a NAT gateway would cost more than its public
            # address. Tasks on our own machines cannot have one.
            "assignPublicIp": "ENABLED" if kind == "cpu" else "DISABLED",
        }

    def _where(self, kind: MachineKind, size: LearnerTask) -> dict[str, Any]:
        if kind == "cpu" and not size.spot:
            return {"launchType": "FARGATE"}
        provider = _SPOT if kind == "cpu" else self._deployed.gpu_provider
        return {"capacityProviderStrategy": [{"capacityProvider": provider, "weight": 1}]}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise LearnerCapacityError(
                f"ECS in cluster {self._deployed.cluster!r}: {type(error).__name__}: {error}"[
                    :_MAX_REASON
                ]
            ) from error


def _overrides(kind: MachineKind, job_id: str, size: LearnerTask) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "environment": [{"name": "NITRO_JOB_ID", "value": job_id}],
    }
    overrides: dict[str, Any] = {"containerOverrides": [container]}
    if kind == "cpu" and size.size is not None:
        cpu, memory_mb = size.size
        overrides |= {"cpu": str(1024 * cpu), "memory": str(memory_mb)}
    return overrides
