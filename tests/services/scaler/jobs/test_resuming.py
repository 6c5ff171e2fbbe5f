"""Environments in which a job may resume."""

import pytest

from services.scaler.jobs.resuming import require_same_spaces
from services.scaler.refusals import ApiError
from shared.contracts.environment_spec import EnvironmentSpec
from tests.services.scaler.lambda_endpoint import HOPPER


def with_parts(*parts: tuple[str, int]) -> EnvironmentSpec:
    observation = HOPPER.observation.model_copy(update={"parts": parts})
    return HOPPER.model_copy(update={"observation": observation})


def test_a_job_resumes_only_with_the_parts_that_it_had_as_far_as_they_are_known() -> None:
    parts = with_parts(("near", 4), ("far", 7))
    require_same_spaces(parts, parts)
    require_same_spaces(HOPPER, parts)  # of an earlier version, which did not record them
    for other in (with_parts(("far", 7), ("near", 4)), HOPPER):
        with pytest.raises(ApiError) as refused:
            require_same_spaces(parts, other)
        assert "observations were" in refused.value.errors[0].message
