"""The learner's ECS service, whose desired count is 1 while there is work and 0 otherwise."""

from typing import Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_TRIES = 2
_MAX_REASON = 300


class LearnerCapacityError(RuntimeError):
    """The service cannot be asked or changed; the message names it and what to check."""


class LearnerCapacity(Protocol):
    """How many learners should be there."""

    def desired(self) -> int:
        """Return how many are asked for."""

    def set_desired(self, num_learners: int) -> None:
        """Ask for that many."""

    def ended(self) -> frozenset[str]:
        """Return the names of those that have ended, as far back as is remembered."""

    def close(self) -> None:
        """Close idle connections."""


class EcsLearnerService:
    """An ECS service; its capacity provider starts and ends the GPU machine below it."""

    def __init__(self, *, cluster: str, service: str, region: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._service = service
        self._client = boto3.client(
            "ecs",
            region_name=region,
            config=Config(
                connect_timeout=timeout_s,
                read_timeout=timeout_s,
                retries={"total_max_attempts": _TRIES, "mode": "standard"},
            ),
        )

    def desired(self) -> int:
        """Return the service's desired count.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses, or there is no such service.
        """
        try:
            answer = self._client.describe_services(cluster=self._cluster, services=[self._service])
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error
        found = [s for s in answer["services"] if s["status"] == "ACTIVE"]
        if not found:
            raise LearnerCapacityError(
                f"there is no active ECS service {self._service!r} in cluster {self._cluster!r}: "
                "check NITRO_ECS_CLUSTER and NITRO_ECS_SERVICE"
            )
        return int(found[0]["desiredCount"])

    def set_desired(self, num_learners: int) -> None:
        """Change the service's desired count.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
        """
        try:
            self._client.update_service(
                cluster=self._cluster, service=self._service, desiredCount=num_learners
            )
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error

    def ended(self) -> frozenset[str]:
        """Return the service's tasks that have stopped, those of about the last hour.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
        """
        try:
            answer = self._client.list_tasks(
                cluster=self._cluster, serviceName=self._service, desiredStatus="STOPPED"
            )
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._failed(error) from error
        return frozenset(answer["taskArns"])

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def _failed(self, error: Exception) -> LearnerCapacityError:
        return LearnerCapacityError(
            f"ECS service {self._service!r} in cluster {self._cluster!r}: "
            f"{type(error).__name__}: {error}"[:_MAX_REASON]
        )
