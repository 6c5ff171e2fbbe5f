"""Which signals an environment's networks have, and so which policies and detectors it takes."""

import pytest

from services.scaler.measurability import measurement_errors, scaling_errors
from shared.job_spec import JobSpec
from shared.scaling_spec import KungFuScaling, NitroScaling
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES

NEEDS_DENSE = {"scaling": {"policy": "kungfu"}, "detector": {"objective": "total_loss"}}


def test_vectors_take_what_only_dense_networks_measure() -> None:
    assert measurement_errors(JobSpec.model_validate(NEEDS_DENSE), HOPPER) == []
    assert scaling_errors(KungFuScaling(policy="kungfu"), HOPPER) == []


@pytest.mark.parametrize("objective", ["surrogate", "behaviour"])
def test_images_take_the_other_objectives_and_policies(objective: str) -> None:
    spec = JobSpec.model_validate({"detector": {"objective": objective}})
    assert measurement_errors(spec, IMAGES) == []
    assert scaling_errors(NitroScaling(), IMAGES) == []


@pytest.mark.parametrize(
    ("part", "field"), [("scaling", "scaling.policy"), ("detector", "detector.objective")]
)
def test_images_are_refused_what_only_dense_networks_measure(part: str, field: str) -> None:
    spec = JobSpec.model_validate({part: NEEDS_DENSE[part]})
    (error,) = measurement_errors(spec, IMAGES)
    assert error.field == field
    assert IMAGES.env_id in error.message
