"""Normalised observations: less a mean, times a scale, within bounds.

The statistics are the learner's and travel with each policy version, so that every number of a
policy is a function of the version and the raw observation; actors only apply them.

Legend: `B` rows, `F` observation size.
"""

import math

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


class ObservationScale:
    """`clip((observation - mean) * scale, -bound, bound)`, all in float32."""

    def __init__(self, mean: Float32, scale: Float32, *, bound: float) -> None:
        """Keep the mean [F] and the scale [F], one over the standard deviation, of one version.

        Raises:
            ValueError: The shapes differ, or a scale or the bound is not above 0.
        """
        if mean.ndim != 1 or mean.shape != scale.shape:
            raise ValueError(
                f"observation_mean has shape {mean.shape} and observation_scale {scale.shape}, "
                "expected (n,) of both"
            )
        if not (scale > 0).all():
            raise ValueError("observation_scale must be above 0 everywhere")
        if not (math.isfinite(bound) and bound > 0):
            raise ValueError(f"observation_clip is {bound}, expected a number above 0")
        # Rows, bounds too: with equal shapes NumPy need not broadcast, see mlp.py.
        self._mean = mean.reshape(1, -1).astype(np.float32)
        self._scale = scale.reshape(1, -1).astype(np.float32)
        self._high = np.full_like(self._mean, bound)
        self._low = -self._high

    @property
    def size(self) -> int:
        """Numbers of an observation, F."""
        return self._mean.size

    def apply(self, observation: Float32, *, out: Float32) -> Float32:
        """Write normalised observations into `out` and return it; both [B, F] float32."""
        np.subtract(observation, self._mean, out=out)
        np.multiply(out, self._scale, out=out)
        np.maximum(out, self._low, out=out)
        return np.minimum(out, self._high, out=out)
