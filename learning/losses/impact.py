"""IMPACT's loss in the form RLlib computes it, and its derivative in closed form.

With mu the policy that acted, pi' the target policy and c `importance_clip`, per sample::

    ratio = min(mu / pi', c) * pi / mu  =  pi / max(pi', mu / c)

    - min(A ratio, A clip(ratio, 1 - clip, 1 + clip))
    + value_coefficient * (V(s) - v)^2 / 2
    - entropy_coefficient * entropy
    + kl_coefficient * KL(pi' || pi)

averaged over the minibatch; A is rho times V-trace's advantage and v its target, both of pi' versus
mu. The second form shows that this is PPO's ratio with another reference: the target policy,
bounded below by mu / c. A term whose coefficient is 0 is left out: 0 x infinity would be NaN. Luo
et al., "IMPACT: Importance weighted asynchronous architectures with clipped target networks", ICLR
2020, section 3.1.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from learning.arrays import Array
from learning.losses.clipped_rule import ClippedRule
from learning.losses.loss_terms import Term
from learning.losses.value_terms import SQUARED_STATS, half_squared_error
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.trajectory.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor


def reference_log_prob(
    target_log_prob: "Tensor", behaviour_log_prob: "Tensor", *, importance_clip: float
) -> "Tensor":
    """Return log max(pi', mu / c), the ratio's reference; all # [n].

    >>> half, tenth = torch.tensor([0.5]).log(), torch.tensor([0.1]).log()
    >>> reference_log_prob(half, tenth, importance_clip=2.0).exp().tolist()
    [0.5]
    >>> reference_log_prob(tenth, half, importance_clip=2.0).exp().tolist()
    [0.25]
    """
    return target_log_prob.maximum(behaviour_log_prob - math.log(importance_clip))


@dataclass(frozen=True, kw_only=True)
class ImpactRule(ClippedRule[ImpactHyperparameters]):
    """IMPACT's loss: a `LossRule`.

    Of a minibatch, `log_prob` is the reference's, `outputs` are the target policy's.
    """

    value_stats: ClassVar[tuple[str, ...]] = SQUARED_STATS

    def value_losses(self, value: "Tensor", minibatch: "Columns[Tensor]") -> "Tensor":
        """Return the value loss of each sample # [n], for autograd."""
        return 0.5 * (value - minibatch.value_target).square()

    def value_term(self, value: Array, target: Array, before: Array) -> Term[Array]:  # noqa: ARG002
        """Return the values' term of the loss."""
        weight = self.hyperparameters.value_coefficient / len(target)
        return half_squared_error(value, target, weight=weight)
