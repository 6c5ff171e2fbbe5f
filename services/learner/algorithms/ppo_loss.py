"""PPO's loss and its derivative in closed form.

Per sample, with r = pi(a|s) / pi_old(a|s) and v_old = V(s) before the update::

    - min(A r, A clip(r, 1 - clip, 1 + clip))
    + value_coefficient * value_loss
    - entropy_coefficient * entropy
    + kl_coefficient * KL(pi_old || pi)

averaged over the minibatch, where value_loss is one of::

    bounded_error: min((V(s) - target)^2, value_clip)
    clipped_step:  max((V(s) - target)^2, (v_clipped - target)^2) / 2
                   with v_clipped = v_old + clip(V(s) - v_old, -value_clip, value_clip)

The first, RLlib's, bounds the error; the second, of OpenAI's PPO2, bounds what one update can gain
by moving the value. A term whose coefficient is 0 is left out: 0 x infinity would be NaN. Schulman
et al., "Proximal policy optimization algorithms", arXiv 1707.06347, equations 7 and 8.

`ppo_loss` states the formula and can be differentiated by autograd; `MinibatchLoss` gives the same
numbers and the derivative without a graph, which is what training runs on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from services.learner.algorithms.minibatch import Minibatch
from services.learner.distributions import Distribution
from shared.ppo_hyperparameters import PpoHyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoLoss:
    """The loss and its terms before coefficients, each a mean over the minibatch."""

    total: Tensor  # []
    policy_loss: Tensor  # []
    value_loss: Tensor  # []
    kl: Tensor  # []
    entropy: Tensor  # []


STATS = (
    "policy_loss",
    "value_loss",
    "kl",
    "entropy",
    "clip_fraction",
    "value_clip_fraction",
)
"""What `MinibatchLoss` tells of a minibatch; `total_of` makes the loss of it."""


def ppo_loss(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    distribution: Distribution,
    hyperparameters: PpoHyperparameters,
    *,
    kl_coefficient: float,
) -> PpoLoss:
    """Return the loss of a minibatch.

    Args:
        outputs: The new policy's outputs. # [n, D]
        value: The new values. # [n]
        minibatch: The samples.
        distribution: What `outputs` parametrise.
        hyperparameters: Clips and coefficients.
        kl_coefficient: The present weight of the KL term.
    """
    clip = hyperparameters.clip
    ratio = torch.exp(distribution.log_prob(outputs, minibatch.action) - minibatch.log_prob)
    surrogate = torch.minimum(
        minibatch.advantage * ratio, minibatch.advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
    )
    policy_loss = -surrogate.mean()
    value_loss = _value_losses(value, minibatch, hyperparameters).mean()
    entropy = distribution.entropy(outputs).mean()
    kl = distribution.kl(minibatch.outputs, outputs).mean()
    total = policy_loss + hyperparameters.value_coefficient * value_loss
    if hyperparameters.entropy_coefficient:
        total = total - hyperparameters.entropy_coefficient * entropy
    if kl_coefficient:
        total = total + kl_coefficient * kl
    return PpoLoss(
        total=total, policy_loss=policy_loss, value_loss=value_loss, kl=kl, entropy=entropy
    )


class MinibatchLoss:
    """The derivative of `ppo_loss(...).total` in closed form, by the policy and by the values.

    Its terms' means are known when both slopes have been asked for.
    """

    def __init__(
        self,
        minibatch: Minibatch,
        distribution: Distribution,
        hyperparameters: PpoHyperparameters,
        *,
        kl_coefficient: float,
    ) -> None:
        """Arguments as in `ppo_loss`."""
        self._minibatch = minibatch
        self._distribution = distribution
        self._hyperparameters = hyperparameters
        self._kl_coefficient = kl_coefficient

    def policy_slope(self, outputs: Tensor) -> Tensor:
        """Return the derivative by the outputs # [n, D], at these."""
        minibatch, entropy_coefficient = self._minibatch, self._hyperparameters.entropy_coefficient
        n = outputs.shape[0]
        new = self._distribution.terms(minibatch.outputs, outputs, minibatch.action)
        ratio = torch.exp(new.log_prob - minibatch.log_prob)
        surrogate = _clipped_surrogate(ratio, minibatch.advantage, self._hyperparameters.clip)
        slope = new.score * surrogate.slope.mul_(-1.0 / n).unsqueeze(1)
        if self._kl_coefficient:
            slope.add_(new.kl_gradient(), alpha=self._kl_coefficient / n)
        if entropy_coefficient:
            entropy_gradient = self._distribution.entropy_gradient(outputs)
            slope.sub_(entropy_gradient, alpha=entropy_coefficient / n)
        self._surrogate, self._kl, self._entropy = surrogate, new.kl, new.entropy
        return slope

    def value_slope(self, value: Tensor) -> Tensor:
        """Return the derivative by the values # [n], at these."""
        self._value_loss = _value_gradient(value, self._minibatch, self._hyperparameters)
        return self._value_loss.slope.mul_(self._hyperparameters.value_coefficient / len(value))

    def stats(self) -> Tensor:
        """Return the means of the terms, # [6] in the order of STATS."""
        per_sample = (
            self._surrogate.losses,
            self._value_loss.losses,
            self._kl,
            self._entropy,
            self._surrogate.clipped,
            self._value_loss.clipped,
        )
        return torch.stack(per_sample).mean(1)


def total_of(
    stats: Mapping[str, float], hyperparameters: PpoHyperparameters, *, kl_coefficient: float
) -> float:
    """Return `ppo_loss(...).total` from the means of its terms, by their names in STATS."""
    total = stats["policy_loss"] + hyperparameters.value_coefficient * stats["value_loss"]
    total -= hyperparameters.entropy_coefficient * stats["entropy"]
    return total + kl_coefficient * stats["kl"]


def clipped_slope(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Return the clipped surrogate's derivative by log pi, per sample # [n]."""
    return _clipped_surrogate(ratio, advantage, clip).slope


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clipped:
    """A clipped loss of each sample."""

    losses: Tensor  # [n]
    slope: Tensor  # [n], derivative by the value, or of minus the loss by log pi
    clipped: Tensor  # [n], 1 where the limit was exceeded (value: and left no slope), else 0


def _value_losses(
    value: Tensor, minibatch: Minibatch, hyperparameters: PpoHyperparameters
) -> Tensor:
    """Return the value loss of each sample # [n]."""
    target, limit = minibatch.value_target, hyperparameters.value_clip
    squared_error = (value - target).square()
    if hyperparameters.value_loss == "bounded_error":
        return squared_error.clamp(0.0, limit)
    clipped = minibatch.value + (value - minibatch.value).clamp(-limit, limit)
    return 0.5 * torch.maximum(squared_error, (clipped - target).square())


def _value_gradient(
    value: Tensor, minibatch: Minibatch, hyperparameters: PpoHyperparameters
) -> _Clipped:
    """Return the value losses of `_value_losses` with their derivatives."""
    target, limit = minibatch.value_target, hyperparameters.value_clip
    error = value - target
    squared_error = error * error
    if hyperparameters.value_loss == "bounded_error":
        clipped = squared_error > limit
        return _Clipped(
            losses=squared_error.clamp_(max=limit),
            slope=error.mul_(2.0).masked_fill_(clipped, 0.0),
            clipped=clipped.to(value.dtype),
        )
    # A value within the limit is kept to the last bit, so that both errors are equal then.
    kept = torch.clamp(value, minibatch.value - limit, minibatch.value + limit)
    kept_error = kept.sub_(target).square_()
    losses = torch.maximum(squared_error, kept_error).mul_(0.5)
    # Where the clipped value's error is the larger one, the sample does not move the value.
    slope = error.masked_fill_(kept_error > squared_error, 0.0)
    return _Clipped(losses=losses, slope=slope, clipped=kept_error.gt_(squared_error))


def _clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> _Clipped:
    """Return minus the clipped surrogate, and the surrogate's derivative by log pi."""
    kept = ratio.clamp(1.0 - clip, 1.0 + clip)
    unclipped, clipped = advantage * ratio, advantage * kept
    losses = torch.minimum(unclipped, clipped).neg_()
    # Where the clipped branch is the smaller one, the sample does not move the policy.
    slope = unclipped.masked_fill_(unclipped > clipped, 0.0)
    return _Clipped(losses=losses, slope=slope, clipped=kept.ne_(ratio))
