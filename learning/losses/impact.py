"""IMPACT's loss in the form RLlib computes it, and its derivative in closed form.

With mu the policy that acted, pi' the target policy and c `importance_clip`, per sample::

    ratio = min(mu / pi', c) * pi / mu  =  pi / max(pi', mu / c)

    - min(A ratio, A clip(ratio, 1 - clip, 1 + clip))
    + value_coefficient * (V(s) - v)^2 / 2
    - entropy_coefficient * entropy
    + kl_coefficient * KL(pi' || pi)

averaged over the minibatch; A is rho times V-trace's advantage and v its target, both of pi' versus
mu. The second form of the ratio shows what it is: PPO's ratio, to a reference that is the target
policy, but no less likely than mu / c. A term whose coefficient is 0 is left out: 0 x infinity
would be NaN. Luo et al., "IMPACT: Importance weighted asynchronous architectures with clipped
target networks", ICLR 2020, section 3.1.

`impact_loss` states the formula and can be differentiated by autograd; `ImpactRule` gives the same
numbers and the derivative without a graph, which is what training runs on.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from learning.data.arrays import Array
from learning.data.batch import Minibatch
from learning.losses.clipped_rule import ClippedRule
from learning.losses.loss_terms import Term
from learning.losses.policy_terms import clipped_objective
from learning.losses.value_terms import SQUARED_STATS, SquaredError
from learning.networks.distributions import Distribution
from shared.hyperparameters.impact import ImpactHyperparameters


def reference_log_prob(
    target_log_prob: Tensor, behaviour_log_prob: Tensor, *, importance_clip: float
) -> Tensor:
    """Return log max(pi', mu / c), which the ratio is taken to; all # [n].

    >>> half, tenth = torch.tensor([0.5]).log(), torch.tensor([0.1]).log()
    >>> reference_log_prob(half, tenth, importance_clip=2.0).exp().tolist()
    [0.5]
    >>> reference_log_prob(tenth, half, importance_clip=2.0).exp().tolist()
    [0.25]
    """
    return torch.maximum(target_log_prob, behaviour_log_prob - math.log(importance_clip))


def impact_loss(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch[Tensor],
    distribution: Distribution,
    hyperparameters: ImpactHyperparameters,
    *,
    kl_coefficient: float,
) -> Tensor:
    """Return the loss of a minibatch, # [].

    Args:
        outputs: The new policy's distribution parameters. # [n, D]
        value: The new values. # [n]
        minibatch: The samples: `log_prob` is the reference's, `outputs` the target policy's.
        distribution: What `outputs` parametrise.
        hyperparameters: Clip and coefficients.
        kl_coefficient: The present weight of the KL term.
    """
    log_ratio = distribution.log_prob(outputs, minibatch.action) - minibatch.log_prob
    surrogate = clipped_objective(log_ratio, minibatch.advantage, clip=hyperparameters.clip)
    error = 0.5 * (value - minibatch.value_target).square()
    total = -surrogate.mean() + hyperparameters.value_coefficient * error.mean()
    if hyperparameters.entropy_coefficient:
        total -= hyperparameters.entropy_coefficient * distribution.entropy(outputs).mean()
    if kl_coefficient:
        total += kl_coefficient * distribution.kl(minibatch.outputs, outputs).mean()
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactRule(ClippedRule[ImpactHyperparameters]):
    """`impact_loss`, and its derivative in closed form: a `LossRule`."""

    def loss(
        self,
        outputs: Tensor,
        value: Tensor,
        minibatch: Minibatch[Tensor],
        distribution: Distribution,
    ) -> Tensor:
        """Return the loss of a minibatch, # []."""
        return impact_loss(
            outputs,
            value,
            minibatch,
            distribution,
            self.hyperparameters,
            kl_coefficient=self.kl_coefficient,
        )

    @property
    def value_stats(self) -> tuple[str, ...]:
        """Names of the value term's stats."""
        return SQUARED_STATS

    def value_term(self, target: Array, before: Array) -> Term[Array]:  # noqa: ARG002 - seam
        """Return the values' term of the loss."""
        weight = self.hyperparameters.value_coefficient / len(target)
        return SquaredError(target, weight=weight)
