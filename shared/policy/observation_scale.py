"""Observation normalisation: subtract a mean, multiply by a scale, clip.

The learner computes the statistics, and each policy version carries them. So a policy's outputs
depend only on its version and the raw observation; actors just apply the statistics.

Where observations begin with pixels, these stay as they are.

Legend: `B` rows, `O` observation size, `F` how many of its last numbers are normalised.
"""

import math

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


class ObservationScale:
    """`clip((observation - mean) * scale, -bound, bound)`, all in float32."""

    def __init__(
        self, mean: Float32, scale: Float32, *, bound: float, size: int | None = None
    ) -> None:
        """Take one version's mean [F] and scale [F], the reciprocal of the standard deviation.

        Args:
            mean: Subtracted first.
            scale: Multiplied next.
            bound: Largest absolute value of the result.
            size: Observation size O; None means F.

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
        # Everything, including the bounds, has row shape: with equal shapes NumPy need not
        # broadcast.
        pixels = (0 if size is None else size - mean.size, 0)
        self._mean = np.pad(mean.astype(np.float32), pixels)[np.newaxis]
        self._scale = np.pad(scale.astype(np.float32), pixels, constant_values=1)[np.newaxis]
        high = np.pad(np.full_like(mean, bound, np.float32), pixels, constant_values=np.inf)
        self._high = high[np.newaxis]
        self._low = -self._high

    @property
    def size(self) -> int:
        """Observation size, O."""
        return self._mean.size

    def apply(self, observation: Float32, *, out: Float32) -> Float32:
        """Write normalised observations into `out` [B, O] float32 and return it."""
        np.subtract(observation, self._mean, out=out)
        np.multiply(out, self._scale, out=out)
        np.maximum(out, self._low, out=out)
        return np.minimum(out, self._high, out=out)
