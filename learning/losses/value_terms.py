"""The values' terms of the losses, with their derivatives in closed form.

Each is at the network's values # [n], for their targets # [n].
"""

from learning.arrays import Array, namespace
from learning.losses.loss_terms import Term, means

SQUARED_STATS = ("value_loss",)
LIMITED_STATS = ("value_loss", "value_clip_fraction")


def half_squared_error(value: Array, target: Array, *, weight: float) -> Term[Array]:
    """Return half the squared error, each sample with a weight. Stats are SQUARED_STATS."""
    error = value - target
    return Term(error * weight, means(0.5 * error * error))


def bounded_error(value: Array, target: Array, *, limit: float, coefficient: float) -> Term[Array]:
    """Return the mean squared error, at most `limit`: RLlib's. Stats are LIMITED_STATS."""
    xp, error = namespace(value), value - target
    squared_error = error * error
    outside = squared_error > limit
    gradient: Array = xp.where(outside, 0.0, error) * (2.0 * coefficient / len(value))
    return Term(gradient, means(squared_error.clip(None, limit), xp.where(outside, 1.0, 0.0)))


def clipped_step(
    value: Array, target: Array, before: Array, *, limit: float, coefficient: float
) -> Term[Array]:
    """Return half the larger of the squared errors with and without the value's step cut.

    OpenAI's PPO2: a step from `before` # [n] is cut to `limit`. A mean; stats are LIMITED_STATS.
    """
    xp, error = namespace(value), value - target
    squared_error = error * error
    # A value within the limit is kept to the last bit, so that both errors are equal then.
    kept = xp.minimum(xp.maximum(value, before - limit), before + limit)
    kept_error = (kept - target) ** 2
    # If the clipped value's error is the larger, the sample does not move the value.
    still = kept_error > squared_error
    gradient: Array = xp.where(still, 0.0, error) * (coefficient / len(value))
    losses = 0.5 * xp.maximum(squared_error, kept_error)
    return Term(gradient, means(losses, xp.where(still, 1.0, 0.0)))
