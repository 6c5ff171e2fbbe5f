"""A control: random numbers in place of the detector.

Without `mean_actors`, a uniform score replaces the detected one, with the same decay and bounds. So
any difference from `nitro` is due to the detector. With `mean_actors`, counts are uniform on the
widest interval around the mean in the job's range, and rounded at random: their expectation is the
mean. The draws of rounds 2j and 2j + 1 are antithetic, so that the control also spends as much as
the compared run.
"""

import math

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from services.scaler.scaling.boosting import num_actors
from shared.contracts.scaling_spec import ActorRange, RandomScaling
from shared.trajectory.seeds import round_uniform


class RandomPolicy(ScalingPolicy[RandomScaling]):
    """Random numbers of actors, equal for equal job seed and round."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Draw a number of actors."""
        if self.parameters.mean_actors is not None:
            return _around(self.parameters.mean_actors, seen)
        uniform = round_uniform(seen.seed, purpose="score", round_index=seen.round_index)
        score = uniform * self.parameters.decay**seen.round_index
        requested = num_actors(score, minimum=seen.actors.min, maximum=seen.actors.max)
        return ScalingDecision(
            requested=requested,
            score=score,
            reason=f"random score {score:.3f}: {requested} actors",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the upper end of the interval, or the number for the largest score."""
        mean, largest = self.parameters.mean_actors, self.parameters.decay**round_index
        if mean is not None:
            return actors.clip(math.ceil(mean + _reach(mean, actors)))
        return num_actors(largest, minimum=actors.min, maximum=actors.max)


def _around(mean: float, seen: ScalingInput) -> ScalingDecision:
    pair, second = divmod(seen.round_index, 2)
    place = round_uniform(seen.seed, purpose="count", round_index=pair)
    lift = round_uniform(seen.seed, purpose="rounding", round_index=pair)
    if second:
        place, lift = 1.0 - place, 1.0 - lift
    drawn = mean + _reach(mean, seen.actors) * (2.0 * place - 1.0)
    requested = seen.actors.clip(math.floor(drawn + lift))
    reason = f"random: {requested} actors, {mean:g} on average"
    return ScalingDecision(requested=requested, reason=reason)


def _reach(mean: float, actors: ActorRange) -> float:
    """Return the largest distance of counts from their mean in a job's range."""
    return min(mean - actors.min, actors.max - mean)
