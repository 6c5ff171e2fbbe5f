"""The paper's policy: as many actors as the boosting score says a round is worth."""

from services.scaler.boosting import boosting_score, num_actors
from services.scaler.scaling.base import ScalingDecision, ScalingInput
from shared.job_spec import NitroScaling


class NitroPolicy:
    """Actors by boosting score (section 5.3)."""

    def __init__(self, parameters: NitroScaling) -> None:
        self._parameters = parameters

    @property
    def history(self) -> int:
        """One window."""
        return self._parameters.window

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Score the round and scale the largest number of actors by the score."""
        boosting = boosting_score(
            seen.ratios,
            seen.ratio,
            round_index=seen.round_index,
            window=self._parameters.window,
            decay=self._parameters.decay,
        )
        wanted = num_actors(boosting.score, minimum=seen.actors.min, maximum=seen.actors.max)
        return ScalingDecision(
            num_actors=wanted,
            score=boosting.score,
            ratio=boosting.ratio,
            reason=f"boosting score {boosting.score:.3f} ({boosting.note}): {wanted} actors",
        )
