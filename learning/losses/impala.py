"""IMPALA's loss, and its derivative in closed form.

Per sample::

    - A log pi(a|s)
    + value_coefficient * (V(s) - v)^2 / 2
    - entropy_coefficient * entropy

summed over the minibatch, as RLlib does, or averaged; A is rho times V-trace's advantage and v its
target, constants of the minibatch. Espeholt et al., "IMPALA: Scalable distributed deep-RL with
importance weighted actor-learner architectures", ICML 2018, section 4.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from learning.arrays import Array
from learning.losses.loss_terms import Term
from learning.losses.policy_terms import LOG_PROB_STATS, weighted_log_prob
from learning.losses.value_terms import SQUARED_STATS, half_squared_error
from learning.networks.step_terms import StepTerms
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.trajectory.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor

    from learning.networks.distributions import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpalaRule:
    """IMPALA's loss: a `LossRule`. `kl` among its stats is from the policy before the update."""

    policy_stats: ClassVar[tuple[str, ...]] = LOG_PROB_STATS
    value_stats: ClassVar[tuple[str, ...]] = SQUARED_STATS

    hyperparameters: ImpalaHyperparameters

    @property
    def sums_samples(self) -> bool:
        """Whether to sum over samples instead of averaging."""
        return self.hyperparameters.loss_reduction == "sum"

    def loss(
        self,
        outputs: "Tensor",
        value: "Tensor",
        minibatch: "Columns[Tensor]",
        distribution: "Distribution",
    ) -> "Tensor":
        """Return the loss of a minibatch, # []: see `LossRule`."""
        hyperparameters = self.hyperparameters
        loss = -minibatch.advantage * distribution.log_prob(outputs, minibatch.action)
        error = value - minibatch.value_target
        loss = loss + 0.5 * hyperparameters.value_coefficient * error.square()
        if hyperparameters.entropy_coefficient:
            loss = loss - hyperparameters.entropy_coefficient * distribution.entropy(outputs)
        return loss.sum() if self.sums_samples else loss.mean()

    def policy_term(
        self, outputs: Array, minibatch: Columns[Array], terms: StepTerms[Array]
    ) -> Term[Array]:
        """Return the policy's term of the loss."""
        return weighted_log_prob(
            outputs,
            minibatch,
            terms,
            weight=self._weight(len(outputs)),
            entropy_coefficient=self.hyperparameters.entropy_coefficient,
        )

    def value_term(self, value: Array, target: Array, before: Array) -> Term[Array]:  # noqa: ARG002
        """Return the values' term of the loss."""
        weight = self.hyperparameters.value_coefficient * self._weight(len(target))
        return half_squared_error(value, target, weight=weight)

    def total(self, stats: Mapping[str, float], *, samples_per_step: float) -> float:
        """Return the loss that these mean stats amount to."""
        total = stats["policy_loss"] + self.hyperparameters.value_coefficient * stats["value_loss"]
        total -= self.hyperparameters.entropy_coefficient * stats["entropy"]
        return total * samples_per_step * self._weight(samples_per_step)

    def _weight(self, num_samples: float) -> float:
        """Return the weight of one of so many samples."""
        return 1.0 if self.sums_samples else 1.0 / num_samples
