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
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from learning.arrays import Array
from learning.losses.clipped_rule import ClippedRule
from learning.losses.loss_terms import Term
from learning.losses.value_terms import LIMITED_STATS, bounded_error, clipped_step
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PpoRule(ClippedRule[PpoHyperparameters]):
    """PPO's loss: a `LossRule`."""

    value_stats: ClassVar[tuple[str, ...]] = LIMITED_STATS

    def value_losses(self, value: "Tensor", minibatch: "Columns[Tensor]") -> "Tensor":
        """Return the value loss of each sample # [n], for autograd."""
        target, limit = minibatch.value_target, self.hyperparameters.value_clip
        squared_error = (value - target).square()
        if self.hyperparameters.value_loss == "bounded_error":
            return squared_error.clamp(0.0, limit)
        clipped = minibatch.value + (value - minibatch.value).clamp(-limit, limit)
        return 0.5 * squared_error.maximum((clipped - target).square())

    def value_term(self, value: Array, target: Array, before: Array) -> Term[Array]:
        """Return the values' term of the loss."""
        limit = self.hyperparameters.value_clip
        coefficient = self.hyperparameters.value_coefficient
        if self.hyperparameters.value_loss == "bounded_error":
            return bounded_error(value, target, limit=limit, coefficient=coefficient)
        return clipped_step(value, target, before, limit=limit, coefficient=coefficient)
