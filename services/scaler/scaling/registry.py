"""The class of each scaling policy: one line per policy."""

from typing import Any

from services.scaler.scaling.auto import AutoPolicy
from services.scaler.scaling.base import ScalingPolicy
from services.scaler.scaling.fixed import FixedPolicy
from services.scaler.scaling.hydrozoa import HydrozoaPolicy
from services.scaler.scaling.kungfu import KungFuPolicy
from services.scaler.scaling.marginal import MarginalPolicy
from services.scaler.scaling.minionsrl import MinionsPolicy
from services.scaler.scaling.nitro import NitroPolicy
from services.scaler.scaling.random_score import RandomPolicy
from services.scaler.scaling.reward_window import RewardWindowPolicy
from services.scaler.scaling.schedule import SchedulePolicy
from shared.contracts.scaling_spec import Policy

SCALING_POLICIES: dict[str, type[ScalingPolicy[Any]]] = {
    "nitro": NitroPolicy,
    "fixed": FixedPolicy,
    "auto": AutoPolicy,
    "random": RandomPolicy,
    "kungfu": KungFuPolicy,
    "marginal": MarginalPolicy,
    "hydrozoa": HydrozoaPolicy,
    "minionsrl": MinionsPolicy,
    "reward_window": RewardWindowPolicy,
    "schedule": SchedulePolicy,
}


def scaling_policy(scaling: Policy) -> ScalingPolicy[Any]:
    """Return a job's scaling policy."""
    return SCALING_POLICIES[scaling.policy](scaling)
