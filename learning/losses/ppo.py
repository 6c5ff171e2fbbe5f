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

`ppo_loss` states the formula and can be differentiated by autograd; `PpoRule` gives the same
numbers and the derivative without a graph, which is what training runs on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from learning.data.arrays import Array
from learning.data.batch import Minibatch
from learning.losses.clipped_rule import ClippedRule
from learning.losses.loss_terms import Term
from learning.losses.policy_terms import clipped_objective
from learning.losses.value_terms import LIMITED_STATS, BoundedError, ClippedStep
from learning.networks.distributions import Distribution
from shared.hyperparameters.ppo import PpoHyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoLoss:
    """The loss and its terms before coefficients, each a mean over the minibatch."""

    total: Tensor  # []
    policy_loss: Tensor  # []
    value_loss: Tensor  # []
    kl: Tensor  # []
    entropy: Tensor  # []


def ppo_loss(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch[Tensor],
    distribution: Distribution,
    hyperparameters: PpoHyperparameters,
    *,
    kl_coefficient: float,
) -> PpoLoss:
    """Return the loss of a minibatch.

    Args:
        outputs: The new policy's distribution parameters. # [n, D]
        value: The new values. # [n]
        minibatch: The samples.
        distribution: What `outputs` parametrise.
        hyperparameters: Clips and coefficients.
        kl_coefficient: The present weight of the KL term.
    """
    log_ratio = distribution.log_prob(outputs, minibatch.action) - minibatch.log_prob
    surrogate = clipped_objective(log_ratio, minibatch.advantage, clip=hyperparameters.clip)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoRule(ClippedRule[PpoHyperparameters]):
    """`ppo_loss(...).total`, and its derivative in closed form: a `LossRule`."""

    def loss(
        self,
        outputs: Tensor,
        value: Tensor,
        minibatch: Minibatch[Tensor],
        distribution: Distribution,
    ) -> Tensor:
        """Return the loss of a minibatch, # []."""
        return ppo_loss(
            outputs,
            value,
            minibatch,
            distribution,
            self.hyperparameters,
            kl_coefficient=self.kl_coefficient,
        ).total

    @property
    def value_stats(self) -> tuple[str, ...]:
        """Names of the value term's stats."""
        return LIMITED_STATS

    def value_term(self, target: Array, before: Array) -> Term[Array]:
        """Return the values' term of the loss."""
        limit = self.hyperparameters.value_clip
        coefficient = self.hyperparameters.value_coefficient
        if self.hyperparameters.value_loss == "bounded_error":
            return BoundedError(target, before, limit=limit, coefficient=coefficient)
        return ClippedStep(target, before, limit=limit, coefficient=coefficient)


def _value_losses(
    value: Tensor, minibatch: Minibatch[Tensor], hyperparameters: PpoHyperparameters
) -> Tensor:
    """Return the value loss of each sample # [n]."""
    target, limit = minibatch.value_target, hyperparameters.value_clip
    squared_error = (value - target).square()
    if hyperparameters.value_loss == "bounded_error":
        return squared_error.clamp(0.0, limit)
    clipped = minibatch.value + (value - minibatch.value).clamp(-limit, limit)
    return 0.5 * torch.maximum(squared_error, (clipped - target).square())
