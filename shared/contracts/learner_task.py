"""The size of a learner's task on AWS, and whether it may be interrupted."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from shared.contracts.message import Message

MB_PER_GB = 1024
_MEMORY_GB: Mapping[int, range] = {
    1: range(2, 9),
    2: range(4, 17),
    4: range(8, 31),
    8: range(16, 61, 4),
    16: range(32, 121, 8),
}
"""Memory that Fargate offers a task by its vCPUs, as published."""


class LearnerTask(Message):
    """The task of a learner on Fargate. Unset fields use the deployment's values."""

    cpu: Annotated[int, Field(strict=True)] | None = None
    """Its vCPUs: 1, 2, 4, 8 or 16."""
    memory_mb: Annotated[int, Field(strict=True, ge=1)] | None = None
    """Its memory, in whole gigabytes of 1,024 MB. Needs `cpu`; the default is 2 GB per vCPU."""
    spot: bool = False
    """Whether it runs on Fargate Spot, at about a third of the price. AWS may end it at two
    minutes' notice. The job then resumes in another task from its last checkpoint, to the same
    weights.
    """

    @property
    def is_default(self) -> bool:
        """Whether it uses only the deployment's values."""
        return self == DEPLOYMENTS_TASK

    @property
    def size(self) -> tuple[int, int] | None:
        """Its vCPUs and its memory in MB; None if the deployment decides."""
        if self.cpu is None:
            return None
        return self.cpu, self.memory_mb or _MEMORY_GB[self.cpu][0] * MB_PER_GB

    def described(self, default: str) -> str:
        """Return the task in words, starting from the deployment's."""
        words = default
        if self.size is not None:
            cpu, memory_mb = self.size
            words = f"Fargate task of {cpu} vCPU and {memory_mb // MB_PER_GB} GB"
        return f"{words}, on Spot" if self.spot else words

    @model_validator(mode="after")
    def _is_sold(self) -> Self:
        if self.cpu is not None and self.cpu not in _MEMORY_GB:
            raise ValueError(f"learner_task.cpu ({self.cpu}) must be 1, 2, 4, 8 or 16")
        if self.memory_mb is None:
            return self
        if self.cpu is None:
            raise ValueError("learner_task.memory_mb needs learner_task.cpu: Fargate sells pairs")
        sold = _MEMORY_GB[self.cpu]
        if self.memory_mb % MB_PER_GB or self.memory_mb // MB_PER_GB not in sold:
            every = f", every {sold.step}" if sold.step > 1 else ""
            raise ValueError(
                f"learner_task.memory_mb ({self.memory_mb}): Fargate gives a task of {self.cpu} "
                f"vCPUs {sold[0]} to {sold[-1]} GB{every}, in whole gigabytes of {MB_PER_GB} MB"
            )
        return self


DEPLOYMENTS_TASK = LearnerTask()
"""A task with only the deployment's values."""
