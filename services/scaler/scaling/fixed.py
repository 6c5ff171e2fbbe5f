"""The simplest control: the same number of actors in every round."""

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.scaling_spec import ActorRange, FixedScaling


class FixedPolicy(ScalingPolicy[FixedScaling]):
    """A constant; curvature is recorded and ignored."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the constant."""
        requested = self.parameters.num_actors
        return ScalingDecision(requested=requested, reason=f"fixed: {requested} actors")

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the constant."""
        return self.parameters.num_actors
