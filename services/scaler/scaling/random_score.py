"""The sceptic's control: chance in place of the detector.

Without `mean_actors` a uniform score takes the place of the detected one, with the same decay and
bounds, so a difference to `nitro` is the detector's doing. With it, counts are uniform on the
widest interval around the mean that the job's range allows, rounded at random: the expectation is
the mean. The draws of rounds 2j and 2j + 1 mirror each other, so that the control also spends what
the run it is held against has spent.
"""

import math

from services.scaler.scaling.base import Memoryless, ScalingDecision, ScalingInput
from services.scaler.scaling.boosting import num_actors
from shared.contracts.scaling_spec import ActorRange, RandomScaling
from shared.trajectory.seeds import round_uniform


class RandomPolicy(Memoryless):
    """Numbers of actors by chance, the same for the same job seed and round."""

    def __init__(self, parameters: RandomScaling) -> None:
        self._decay = parameters.decay
        self._mean = parameters.mean_actors

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Draw a number of actors."""
        if self._mean is not None:
            return self._around(self._mean, seen)
        uniform = round_uniform(seen.seed, purpose="score", round_index=seen.round_index)
        score = uniform * self._decay**seen.round_index
        requested = num_actors(score, minimum=seen.actors.min, maximum=seen.actors.max)
        return ScalingDecision(
            requested=requested,
            score=score,
            ratio=seen.ratio.value,
            reason=f"random score {score:.3f}: {requested} actors",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the upper end of the interval, or what the largest score would come to."""
        if self._mean is not None:
            return actors.clip(math.ceil(self._mean + _reach(self._mean, actors)))
        return num_actors(self._decay**round_index, minimum=actors.min, maximum=actors.max)

    @staticmethod
    def _around(mean: float, seen: ScalingInput) -> ScalingDecision:
        pair, second = divmod(seen.round_index, 2)
        place = round_uniform(seen.seed, purpose="count", round_index=pair)
        lift = round_uniform(seen.seed, purpose="rounding", round_index=pair)
        if second:
            place, lift = 1.0 - place, 1.0 - lift
        drawn = mean + _reach(mean, seen.actors) * (2.0 * place - 1.0)
        requested = seen.actors.clip(math.floor(drawn + lift))
        return ScalingDecision(
            requested=requested,
            score=None,
            ratio=seen.ratio.value,
            reason=f"random: {requested} actors, {mean:g} on average",
        )


def _reach(mean: float, actors: ActorRange) -> float:
    """Return how far counts may be from their mean inside a job's range."""
    return min(mean - actors.min, actors.max - mean)
