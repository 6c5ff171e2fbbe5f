"""Whether what a job wants to be decided by can be measured on its environment at all."""

from shared.environment_spec import EnvironmentSpec
from shared.job_spec import JobSpec
from shared.problem import FieldError
from shared.scaling_spec import KungFuScaling, Policy


def measurement_errors(spec: JobSpec, environment: EnvironmentSpec) -> list[FieldError]:
    """Return the errors of a scaling policy or a detector that would never get a number."""
    errors = scaling_errors(spec.scaling, environment)
    if spec.detector.objective == "total_loss" and environment.observation.is_image:
        errors.append(
            FieldError(
                field="detector.objective",
                message=(
                    "'total_loss' is defined for dense networks only, and "
                    f"{environment.env_id} has images: use 'surrogate' or 'behaviour'"
                ),
            )
        )
    return errors


def scaling_errors(scaling: Policy, environment: EnvironmentSpec) -> list[FieldError]:
    """Return the error of a policy whose signal the environment's networks do not have."""
    if not (isinstance(scaling, KungFuScaling) and environment.observation.is_image):
        return []
    return [
        FieldError(
            field="scaling.policy",
            message=(
                "'kungfu' needs the gradient noise, which is not measured for convolutional "
                f"networks, and {environment.env_id} has images: use another policy"
            ),
        )
    ]
