"""Normal distributions squashed into (-1, 1), as in SAC.

Legend: `...` any leading axes, `A` action size, `H` network outputs.
"""

import math

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Action = NDArray[np.float32] | NDArray[np.int64]

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
"""Range of the log-standard deviations, onto which a tanh maps the network's outputs (CleanRL)."""
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LARGEST = 1.0 - 2.0**-24
"""Largest float32 below 1; tanh maps no finite number to 1."""


class SquashedGaussian:
    """Independent normal variables, each through a tanh; the outputs are `mean | raw` (H = 2A).

    An untrained policy may draw its actions uniformly from [-1, 1] instead (`uniform`), to explore
    all actions equally. Its mode is still the network's.
    """

    num_choices = None

    def __init__(self, action_size: int, *, uniform: bool = False) -> None:
        self.num_outputs = 2 * action_size
        self.action_shape = (action_size,)
        self._size = action_size
        self._uniform = uniform

    def new_actions(self, shape: tuple[int, ...]) -> Float32:
        """Return zeros [*shape, A]."""
        return np.zeros((*shape, self._size), np.float32)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw normal noise [*shape, A], or the actions themselves if they are uniform."""
        if self._uniform:
            return rng.uniform(-1.0, 1.0, (*shape, self._size)).astype(np.float32)
        return rng.standard_normal((*shape, self._size), dtype=np.float32)

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        if self._uniform:
            out[...] = noise
            return
        np.exp(self._log_std(outputs), out=out)
        np.multiply(out, noise, out=out)
        np.add(out, outputs[..., : self._size], out=out)
        np.tanh(out, out=out)

    def mode(self, outputs: Float32) -> Float32:
        """Return the squashed means: not the exact mode, but the usual choice for evaluation."""
        squashed: Float32 = np.tanh(outputs[..., : self._size])
        return squashed

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return log-densities, computed in float64; an action of 1 counts as just below 1."""
        if self._uniform:
            return np.full(outputs.shape[:-1], -self._size * math.log(2.0), np.float32)
        squashed = np.clip(action.astype(np.float64), -_LARGEST, _LARGEST)
        log_std = self._log_std(outputs).astype(np.float64)
        z = (np.arctanh(squashed) - outputs[..., : self._size]) * np.exp(-log_std)
        log_slope = np.log1p(-squashed * squashed)
        each: NDArray[np.float64] = -0.5 * z * z - log_std - _HALF_LOG_2PI - log_slope
        return np.asarray(each.sum(axis=-1), np.float32)

    def _log_std(self, outputs: Float32) -> Float32:
        share = np.tanh(outputs[..., self._size :]) + np.float32(1.0)
        scaled: Float32 = np.float32(0.5 * (LOG_STD_MAX - LOG_STD_MIN)) * share
        return scaled + np.float32(LOG_STD_MIN)
