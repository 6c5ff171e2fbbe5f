"""Sizes of a learner's task that Fargate sells."""

import pytest
from pydantic import ValidationError

from shared.contracts.learner_task import LearnerTask


@pytest.mark.parametrize(
    ("cpu", "memory_mb", "size"),
    [(None, None, None), (2, None, (2, 4096)), (4, 30_720, (4, 30_720)), (8, 20_480, (8, 20_480))],
)
def test_what_is_left_out_is_the_least_or_the_deployments(
    cpu: int | None, memory_mb: int | None, size: tuple[int, int] | None
) -> None:
    task = LearnerTask.model_validate({"cpu": cpu, "memory_mb": memory_mb})
    assert (task.size, task.is_default) == (size, cpu is None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"memory_mb": 4096}, "needs learner_task.cpu"),
        ({"cpu": 3}, "1, 2, 4, 8 or 16"),
        ({"cpu": 2, "memory_mb": 3072}, "2 vCPUs 4 to 16 GB, in whole"),
        ({"cpu": 2, "memory_mb": 5000}, "whole gigabytes of 1024 MB"),
        ({"cpu": 8, "memory_mb": 17_408}, "16 to 60 GB, every 4"),
    ],
)
def test_a_size_that_is_not_sold_is_refused(given: dict[str, int], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LearnerTask.model_validate(given)
