"""A given list of counts: replays a run, or tries any plan one can write down."""

from services.scaler.scaling.base import Memoryless, ScalingDecision, ScalingInput
from shared.contracts.scaling_spec import ActorRange, ScheduleScaling


class SchedulePolicy(Memoryless):
    """The list's entry for the round; past its end the last entry holds."""

    def __init__(self, parameters: ScheduleScaling) -> None:
        self._counts = parameters.num_actors

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the round's entry."""
        last = len(self._counts) - 1
        requested = self._counts[min(seen.round_index, last)]
        past_end = " (past the end of the schedule: its last entry)"
        return ScalingDecision(
            requested=requested,
            score=None,
            ratio=seen.ratio.value,
            reason=f"schedule: {requested} actors{past_end if seen.round_index > last else ''}",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the largest entry that is left."""
        return max(self._counts[round_index:] or self._counts[-1:])
