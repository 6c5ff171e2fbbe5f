"""Which policy implements which `scaling` of a job."""

from services.scaler.scaling.base import ScalingPolicy
from services.scaler.scaling.fixed import FixedPolicy
from services.scaler.scaling.nitro import NitroPolicy
from shared.job_spec import NitroScaling, Scaling


def scaling_policy(scaling: Scaling) -> ScalingPolicy:
    """Return the policy a job asked for."""
    if isinstance(scaling, NitroScaling):
        return NitroPolicy(scaling)
    return FixedPolicy(scaling)
