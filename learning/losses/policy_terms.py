"""The policy's terms of the losses, with their derivatives in closed form."""

from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from learning.data.arrays import Array, namespace
from learning.data.batch import Minibatch
from learning.losses.loss_terms import means
from learning.networks.distributions import StepTerms

CLIPPED_STATS = ("policy_loss", "kl", "entropy", "clip_fraction")
LOG_PROB_STATS = ("policy_loss", "kl", "entropy")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surrogate(Generic[Array]):
    losses: Array  # [n]
    gradient: Array  # [n], derivative of minus the losses by log pi
    clipped: Array  # [n], 1 where the ratio was, else 0


class ClippedPolicy(Generic[Array]):
    """The clipped surrogate of PPO and IMPACT, with entropy bonus and KL penalty.

    Stats are CLIPPED_STATS.
    """

    _surrogate: _Surrogate[Array]
    _kl: Array  # [n]
    _entropy: Array  # [n]

    def __init__(
        self,
        minibatch: Minibatch[Array],
        distribution: StepTerms[Array],
        *,
        clip: float,
        entropy_coefficient: float,
        kl_coefficient: float,
    ) -> None:
        """Take a minibatch; a term whose coefficient is 0 is left out.

        Args:
            minibatch: `log_prob` is what the ratio is taken to, `outputs` what the KL is from.
            distribution: What outputs parametrise.
            clip: Half-width of the interval the ratio is clipped to.
            entropy_coefficient: Weight of the bonus.
            kl_coefficient: Weight of the penalty.
        """
        self._minibatch: Minibatch[Array] = minibatch
        self._distribution: StepTerms[Array] = distribution
        self._clip = clip
        self._entropy_coefficient = entropy_coefficient
        self._kl_coefficient = kl_coefficient

    def gradient(self, at: Array) -> Array:
        """Return the derivative at the network's answers `at`."""
        minibatch, xp, n = self._minibatch, namespace(at), len(at)
        new = self._distribution.terms(minibatch.outputs, at, minibatch.action)
        ratio = xp.exp(new.log_prob - minibatch.log_prob)
        surrogate = _clipped_surrogate(ratio, minibatch.advantage, self._clip)
        gradient: Array = new.score * (surrogate.gradient * (-1.0 / n))[:, None]
        if self._kl_coefficient:
            gradient += new.kl_gradient() * (self._kl_coefficient / n)
        if self._entropy_coefficient:
            gradient -= self._distribution.entropy_gradient(at) * (self._entropy_coefficient / n)
        self._surrogate, self._kl, self._entropy = surrogate, new.kl, new.entropy
        return gradient

    def stats(self) -> Array:
        """Return the mean of each stat # [S]."""
        surrogate = self._surrogate
        return means(surrogate.losses, self._kl, self._entropy, surrogate.clipped)


class WeightedLogProb(Generic[Array]):
    """The policy gradient's loss, minus advantage times log-probability, with an entropy bonus.

    Stats are LOG_PROB_STATS.
    """

    _losses: Array  # [n]
    _kl: Array  # [n]
    _entropy: Array  # [n]

    def __init__(
        self,
        minibatch: Minibatch[Array],
        distribution: StepTerms[Array],
        *,
        weight: float,
        entropy_coefficient: float,
    ) -> None:
        """Take a minibatch; a bonus whose coefficient is 0 is left out.

        Args:
            minibatch: `outputs` is what the KL among the stats is from.
            distribution: What outputs parametrise.
            weight: Of each sample.
            entropy_coefficient: Weight of the bonus.
        """
        self._minibatch: Minibatch[Array] = minibatch
        self._distribution: StepTerms[Array] = distribution
        self._weight = weight
        self._entropy_coefficient = entropy_coefficient

    def gradient(self, at: Array) -> Array:
        """Return the derivative at the network's answers `at`."""
        minibatch, weight = self._minibatch, self._weight
        new = self._distribution.terms(minibatch.outputs, at, minibatch.action)
        gradient: Array = new.score * (minibatch.advantage * -weight)[:, None]
        if self._entropy_coefficient:
            bonus = self._entropy_coefficient * weight
            gradient -= self._distribution.entropy_gradient(at) * bonus
        self._losses = -(minibatch.advantage * new.log_prob)
        self._kl, self._entropy = new.kl, new.entropy
        return gradient

    def stats(self) -> Array:
        """Return the mean of each stat # [S]."""
        return means(self._losses, self._kl, self._entropy)


def clipped_objective(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Return the clipped surrogate of each sample # [n], for autograd: to be maximised.

    Args:
        log_ratio: Log-probability less that of the reference. # [n]
        advantage: # [n]
        clip: Half-width of the interval the ratio is clipped to.
    """
    ratio = torch.exp(log_ratio)
    return torch.minimum(advantage * ratio, advantage * ratio.clamp(1.0 - clip, 1.0 + clip))


def _clipped_surrogate(ratio: Array, advantage: Array, clip: float) -> _Surrogate[Array]:
    xp = namespace(ratio)
    kept = ratio.clip(1.0 - clip, 1.0 + clip)
    unclipped, clipped = advantage * ratio, advantage * kept
    return _Surrogate(
        losses=-xp.minimum(unclipped, clipped),
        # Where the clipped branch is the smaller one, the sample does not move the policy.
        gradient=xp.where(unclipped > clipped, 0.0, unclipped),
        clipped=xp.where(kept == ratio, 0.0, 1.0),
    )
