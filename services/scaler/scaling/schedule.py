"""A given list of counts, to replay a run or try any plan."""

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.scaling_spec import ActorRange, ScheduleScaling


class SchedulePolicy(ScalingPolicy[ScheduleScaling]):
    """The list's entry for the round; past its end the last entry holds."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the round's entry."""
        counts = self.parameters.num_actors
        last = len(counts) - 1
        requested = counts[min(seen.round_index, last)]
        past_end = " (past the end of the schedule: its last entry)"
        return ScalingDecision(
            requested=requested,
            reason=f"schedule: {requested} actors{past_end if seen.round_index > last else ''}",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the largest remaining entry."""
        counts = self.parameters.num_actors
        return max(counts[round_index:] or counts[-1:])
