"""Hydrozoa's doubling schedule, as the paper compares with it (section 8.2).

Guo et al., "Hydrozoa: Dynamic Hybrid-Parallel DNN Training on Serverless Containers", MLSys 2022,
grows the batch during training whatever the gradients say.
"""

from services.scaler.scaling.base import Memoryless, ScalingDecision, ScalingInput
from shared.contracts.scaling_spec import ActorRange, HydrozoaScaling


class HydrozoaPolicy(Memoryless):
    """`min(I_min * 2^floor(k / n), I_max)`, rounds counted from the start of the job."""

    def __init__(self, parameters: HydrozoaScaling) -> None:
        self._every = parameters.every_rounds

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the schedule's number."""
        doublings = seen.round_index // self._every
        # No range spans more than 12 doublings; a long job must not compute a huge power.
        requested = seen.actors.clip(seen.actors.min << min(doublings, 12))
        return ScalingDecision(
            requested=requested,
            score=None,
            ratio=seen.ratio.value,
            reason=f"hydrozoa: {doublings} doublings of {seen.actors.min}: {requested} actors",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the range's end: the schedule only grows."""
        return actors.max
