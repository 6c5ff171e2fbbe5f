"""Which policy implements which `scaling` of a job."""

from typing import assert_never

from services.scaler.scaling.base import ScalingPolicy
from services.scaler.scaling.fixed import FixedPolicy
from services.scaler.scaling.hydrozoa import HydrozoaPolicy
from services.scaler.scaling.kungfu import KungFuPolicy
from services.scaler.scaling.minionsrl import MinionsPolicy
from services.scaler.scaling.nitro import NitroPolicy
from services.scaler.scaling.random_score import RandomPolicy
from services.scaler.scaling.reward_window import RewardWindowPolicy
from services.scaler.scaling.schedule import SchedulePolicy
from shared.contracts.scaling_spec import (
    FixedScaling,
    HydrozoaScaling,
    KungFuScaling,
    MinionsScaling,
    NitroScaling,
    Policy,
    RandomScaling,
    RewardWindowScaling,
    ScheduleScaling,
)


def scaling_policy(scaling: Policy) -> ScalingPolicy:  # noqa: C901 - one line per policy
    """Return the policy a job asked for."""
    match scaling:
        case NitroScaling():
            return NitroPolicy(scaling)
        case FixedScaling():
            return FixedPolicy(scaling)
        case RandomScaling():
            return RandomPolicy(scaling)
        case KungFuScaling():
            return KungFuPolicy(scaling)
        case HydrozoaScaling():
            return HydrozoaPolicy(scaling)
        case MinionsScaling():
            return MinionsPolicy(scaling)
        case RewardWindowScaling():
            return RewardWindowPolicy(scaling)
        case ScheduleScaling():
            return SchedulePolicy(scaling)
        case _:
            assert_never(scaling)
