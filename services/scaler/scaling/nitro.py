"""The paper's policy: the number of actors in proportion to the boosting score."""

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from services.scaler.scaling.boosting import boosting_score, num_actors
from services.scaler.scaling.published_score import published_num_actors, published_score
from shared.contracts.scaling_spec import ActorRange, NitroScaling


class NitroPolicy(ScalingPolicy[NitroScaling]):
    """Actors by boosting score (section 5.3), or by the published code's score."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Score the round and scale the largest number of actors by the score."""
        parameters, published = self.parameters, self.parameters.convention == "artifact"
        score_of = published_score if published else boosting_score
        boosting = score_of(
            seen.ratios,
            seen.ratio,
            round_index=seen.round_index,
            window=parameters.window,
            decay=parameters.decay,
        )
        if published:
            requested = published_num_actors(
                boosting.score,
                round_index=seen.round_index,
                decay=parameters.decay,
                actors=seen.actors,
            )
        else:
            requested = num_actors(boosting.score, minimum=seen.actors.min, maximum=seen.actors.max)
        name = "published score" if published else "boosting score"
        return ScalingDecision(
            requested=requested,
            score=boosting.score,
            ratio=boosting.ratio,
            reason=f"{name} {boosting.score:.3f} ({boosting.note}): {requested} actors",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the number for the largest score; the published score does not decay."""
        if self.parameters.convention == "artifact":
            return actors.max
        largest = self.parameters.decay**round_index
        return num_actors(largest, minimum=actors.min, maximum=actors.max)

    @property
    def num_ratios(self) -> int:
        """The window."""
        return self.parameters.window
