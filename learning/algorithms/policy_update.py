"""The result of policy updates, one or all between two rounds, and the types of saved state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

StateArrays = dict[str, NDArray[np.generic]]
"""Weights, optimiser moments, random states by name: what a checkpoint stores as arrays."""
StateScalars = dict[str, bool | int | float | str]
"""The rest of the state by name: what a checkpoint stores as JSON."""
_LARGEST = "_max"
"""Suffix of stats that are summarised by their maximum."""
_FRESH = "fresh"
_COUNTS = ("updates", "replays")
NOISE_VARIANCE, NOISE_SQUARED_NORM = "gradient_variance", "gradient_squared_norm"
"""Names of the two parts of the gradient noise scale."""
_NOISE_SCALE = "noise_scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyUpdate:
    """The result of one update."""

    stats: dict[str, float]
    """Finite scalars by name: losses, KL, entropy, clip fractions."""


class UpdateTally:
    """Sums up updates until it is taken."""

    def __init__(self) -> None:
        self._updates: list[dict[str, float]] = []

    def add(self, update: PolicyUpdate) -> None:
        """Count one update."""
        self._updates.append(update.stats)

    def take(self) -> dict[str, float]:
        """Return the summary of the updates since the last take.

        Returns:
            `updates`, `replays` (updates with a batch that was used before), the maximum of stats
            that end in `_max`, such as `policy_lag_max`, and the mean of all other stats, with
            their `noise_scale`; only the counts without an update.
        """
        updates, self._updates = self._updates, []
        stats = summary(updates)
        replays = sum(update.get(_FRESH, 1.0) == 0.0 for update in updates)
        stats.pop(_FRESH, None)
        return stats | {"updates": float(len(updates)), "replays": float(replays)}


def summary(stats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of counts, the maxima of stats that end in `_max`, and the others' means.

    `noise_scale` is a quotient of means, as `GradientNoise` says. It is left out if the mean of the
    squared norms is not positive: the noise hides the gradient then.
    """
    summed: dict[str, float] = {}
    for name in dict.fromkeys(name for each in stats for name in each):
        values = [each[name] for each in stats if name in each]
        if name in _COUNTS:
            summed[name] = sum(values)
        else:
            summed[name] = max(values) if name.endswith(_LARGEST) else sum(values) / len(values)
    summed.pop(_NOISE_SCALE, None)
    squared_norm = summed.get(NOISE_SQUARED_NORM, 0.0)
    if squared_norm > 0.0:
        scale = summed[NOISE_VARIANCE] / squared_norm
        if math.isfinite(scale):
            summed[_NOISE_SCALE] = scale
    return summed
