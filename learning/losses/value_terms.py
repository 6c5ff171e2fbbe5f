"""The values' terms of the losses, with their derivatives in closed form."""

from typing import Generic

from learning.data.arrays import Array, namespace
from learning.losses.loss_terms import means

SQUARED_STATS = ("value_loss",)
LIMITED_STATS = ("value_loss", "value_clip_fraction")


class SquaredError(Generic[Array]):
    """Half the squared error. Stats are SQUARED_STATS."""

    _error: Array  # [n]

    def __init__(self, target: Array, *, weight: float) -> None:
        """Take a minibatch.

        Args:
            target: What the values should be. # [n]
            weight: Of each sample.
        """
        self._target: Array = target
        self._weight = weight

    def gradient(self, at: Array) -> Array:
        """Return the derivative at the network's answers `at`."""
        self._error = at - self._target
        gradient: Array = self._error * self._weight
        return gradient

    def stats(self) -> Array:
        """Return the mean of each stat # [S]."""
        return means(0.5 * self._error * self._error)


class _Limited(Generic[Array]):
    """A squared error that is limited for each sample. Stats are LIMITED_STATS."""

    _losses: Array  # [n]
    _held: Array  # [n], 1 where the limit left no gradient, else 0

    def __init__(self, target: Array, before: Array, *, limit: float, coefficient: float) -> None:
        """Take a minibatch, whose loss is a mean.

        Args:
            target: What the values should be. # [n]
            before: What they were before the update. # [n]
            limit: See the class.
            coefficient: Weight of the loss.
        """
        self._target: Array = target
        self._before: Array = before
        self._limit = limit
        self._coefficient = coefficient

    def stats(self) -> Array:
        """Return the mean of each stat # [S]."""
        return means(self._losses, self._held)


class BoundedError(_Limited[Array]):
    """The squared error, at most `limit`: RLlib's."""

    def gradient(self, at: Array) -> Array:
        """Return the derivative at the network's answers `at`."""
        xp, error = namespace(at), at - self._target
        squared_error = error * error
        outside = squared_error > self._limit
        self._losses = squared_error.clip(None, self._limit)
        self._held = xp.where(outside, 1.0, 0.0)
        gradient: Array = xp.where(outside, 0.0, error) * (2.0 * self._coefficient / len(at))
        return gradient


class ClippedStep(_Limited[Array]):
    """Half the larger of the squared errors with and without the value's step cut to `limit`.

    OpenAI's PPO2.
    """

    def gradient(self, at: Array) -> Array:
        """Return the derivative at the network's answers `at`."""
        xp, error = namespace(at), at - self._target
        squared_error = error * error
        # A value within the limit is kept to the last bit, so that both errors are equal then.
        kept = xp.minimum(xp.maximum(at, self._before - self._limit), self._before + self._limit)
        kept_error = (kept - self._target) ** 2
        # Where the clipped value's error is the larger one, the sample does not move the value.
        still = kept_error > squared_error
        self._losses = 0.5 * xp.maximum(squared_error, kept_error)
        self._held = xp.where(still, 1.0, 0.0)
        gradient: Array = xp.where(still, 0.0, error) * (self._coefficient / len(at))
        return gradient
