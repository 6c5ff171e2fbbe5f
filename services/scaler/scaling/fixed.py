"""The plainest control: the same number of actors every round."""

from services.scaler.scaling.base import Memoryless, ScalingDecision, ScalingInput
from shared.contracts.scaling_spec import ActorRange, FixedScaling


class FixedPolicy(Memoryless):
    """A constant; curvature is recorded and ignored."""

    def __init__(self, parameters: FixedScaling) -> None:
        self._num_actors = parameters.num_actors

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the constant."""
        return ScalingDecision(
            requested=self._num_actors,
            score=None,
            ratio=seen.ratio.value,
            reason=f"fixed: {self._num_actors} actors",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the constant."""
        return self._num_actors
