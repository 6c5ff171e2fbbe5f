"""Hydrozoa's doubling schedule, one of the paper's baselines (section 8.2).

Guo et al., "Hydrozoa: Dynamic Hybrid-Parallel DNN Training on Serverless Containers", MLSys 2022,
grows the batch during training, regardless of the gradients.
"""

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.scaling_spec import HydrozoaScaling


class HydrozoaPolicy(ScalingPolicy[HydrozoaScaling]):
    """`min(I_min * 2^floor(k / n), I_max)`, rounds counted from the start of the job."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the schedule's number."""
        doublings = seen.round_index // self.parameters.every_rounds
        # No range spans more than 12 doublings; the bound avoids huge powers in long jobs.
        requested = seen.actors.clip(seen.actors.min << min(doublings, 12))
        return ScalingDecision(
            requested=requested,
            reason=f"hydrozoa: {doublings} doublings of {seen.actors.min}: {requested} actors",
        )
