"""Terms of an action distribution for a gradient step, for tensors and NumPy arrays alike.

Nothing here imports torch: functions that compute gradients have none.

Legend: N samples; A action dimensions; D distribution parameters.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol

from learning.arrays import Array, namespace

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTerms(Generic[Array]):
    """All that one gradient step needs of the new policy, computed together to share work."""

    log_prob: Array  # [N], log pi(a|s)
    score: Array  # [N, D], derivative of log_prob
    kl: Array  # [N], KL(old || new)
    entropy: Array  # [N]
    kl_gradient: Callable[[], Array]  # [N, D]; computed on request, most losses never ask


class StepTerms(Protocol[Array]):
    """Terms of a family of action distributions for a gradient step."""

    def terms(self, old: Array, new: Array, action: Array) -> PolicyTerms[Array]:
        """Return log-probability and KL with their gradients, and the entropy."""
        ...

    def entropy_gradient(self, outputs: Array) -> Array:
        """Return the entropy's derivative, shape [N, D]."""
        ...


class SplitLoss(Protocol[Array]):
    """A minibatch's loss that is a sum of a term of the policy and a term of the values."""

    def policy_gradient(self, outputs: Array) -> Array:
        """Return the derivative of the mean loss by the outputs # [N, D], at these."""
        ...

    def value_gradient(self, value: Array) -> Array:
        """Return the derivative of the mean loss by the values # [N], at these."""
        ...


class GaussianTerms:
    """Of independent normal dimensions; `outputs` are means, then log-standard deviations."""

    def entropy_gradient(self, outputs: Array) -> Array:
        """Return the entropy's derivative, shape [N, 2A]: 0 for means, 1 for log-deviations."""
        gradient: Array = namespace(outputs).zeros_like(outputs)
        gradient[:, outputs.shape[1] // 2 :] = 1.0
        return gradient

    def terms(self, old: Array, new: Array, action: Array) -> PolicyTerms[Array]:
        """Return log-probability and KL with their gradients, and the entropy."""
        xp, size = namespace(new), action.shape[1]
        old_mean, old_log_std = old[:, :size], old[:, size:]
        mean, log_std = new[:, :size], new[:, size:]
        log_stds = log_std.sum(1)
        inverse_std = xp.exp(-log_std)
        z = (action - mean) * inverse_std
        z2 = z * z
        distance = (mean - old_mean) * inverse_std
        log_ratio = old_log_std - log_std  # of the old deviation to the new
        ratio = xp.exp(log_ratio)
        spread = ratio * ratio + distance * distance

        def kl_gradient() -> Array:
            gradient: Array = xp.concatenate((distance * inverse_std, 1.0 - spread), 1)
            return gradient

        return PolicyTerms(
            log_prob=normal_log_prob(log_stds, z2),
            score=xp.concatenate((z * inverse_std, z2 - 1.0), 1),
            kl=(0.5 * spread - log_ratio).sum(1) - 0.5 * size,
            entropy=log_stds + (0.5 + HALF_LOG_TWO_PI) * size,
            kl_gradient=kl_gradient,
        )


def normal_log_prob(log_stds: Array, z2: Array) -> Array:
    """Return log-densities # [N].

    In one place, so that equal outputs have a ratio of exactly 1 within one library.

    Args:
        log_stds: Sums of the log-standard deviations over the dimensions. # [N]
        z2: Squared distances from the mean, in deviations. # [N, A]
    """
    log_prob: Array = -0.5 * z2.sum(1) - log_stds - HALF_LOG_TWO_PI * z2.shape[1]
    return log_prob
