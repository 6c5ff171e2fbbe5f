"""IMPALA's loss, and its derivative in closed form.

Per sample::

    - A log pi(a|s)
    + value_coefficient * (V(s) - v)^2 / 2
    - entropy_coefficient * entropy

summed over the minibatch, as RLlib does, or averaged; A is rho times V-trace's advantage and v its
target, constants of the minibatch. Espeholt et al., "IMPALA: Scalable distributed deep-RL with
importance weighted actor-learner architectures", ICML 2018, section 4.2.

`impala_loss` states the formula and can be differentiated by autograd; `ImpalaRule` gives the same
number and the derivative without a graph, which is what training runs on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from learning.data.arrays import Array
from learning.data.batch import Minibatch
from learning.losses.loss_terms import Term
from learning.losses.policy_terms import LOG_PROB_STATS, WeightedLogProb
from learning.losses.value_terms import SQUARED_STATS, SquaredError
from learning.networks.distributions import Distribution, StepTerms
from shared.hyperparameters.impala import ImpalaHyperparameters


def impala_loss(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch[Tensor],
    distribution: Distribution,
    hyperparameters: ImpalaHyperparameters,
) -> Tensor:
    """Return the loss of a minibatch, # [].

    Args:
        outputs: The new policy's distribution parameters. # [n, D]
        value: The new values. # [n]
        minibatch: The samples.
        distribution: What `outputs` parametrise.
        hyperparameters: Coefficients and reduction.
    """
    loss = -minibatch.advantage * distribution.log_prob(outputs, minibatch.action)
    error = value - minibatch.value_target
    loss = loss + 0.5 * hyperparameters.value_coefficient * error.square()
    if hyperparameters.entropy_coefficient:
        loss = loss - hyperparameters.entropy_coefficient * distribution.entropy(outputs)
    return loss.sum() if hyperparameters.loss_reduction == "sum" else loss.mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpalaRule:
    """`impala_loss`, and its derivative in closed form: a `LossRule`.

    `kl` among its stats is from the policy before the update.
    """

    hyperparameters: ImpalaHyperparameters

    def loss(
        self,
        outputs: Tensor,
        value: Tensor,
        minibatch: Minibatch[Tensor],
        distribution: Distribution,
    ) -> Tensor:
        """Return the loss of a minibatch, # []."""
        return impala_loss(outputs, value, minibatch, distribution, self.hyperparameters)

    @property
    def policy_stats(self) -> tuple[str, ...]:
        """Names of the policy term's stats."""
        return LOG_PROB_STATS

    @property
    def value_stats(self) -> tuple[str, ...]:
        """Names of the value term's stats."""
        return SQUARED_STATS

    def policy_term(self, minibatch: Minibatch[Array], terms: StepTerms[Array]) -> Term[Array]:
        """Return the policy's term of the loss."""
        return WeightedLogProb(
            minibatch,
            terms,
            weight=self._weight(len(minibatch.advantage)),
            entropy_coefficient=self.hyperparameters.entropy_coefficient,
        )

    def value_term(self, target: Array, before: Array) -> Term[Array]:  # noqa: ARG002 - seam
        """Return the values' term of the loss."""
        weight = self.hyperparameters.value_coefficient * self._weight(len(target))
        return SquaredError(target, weight=weight)

    def total(self, stats: Mapping[str, float], *, samples_per_step: float) -> float:
        """Return the loss that these mean stats amount to."""
        total = stats["policy_loss"] + self.hyperparameters.value_coefficient * stats["value_loss"]
        total -= self.hyperparameters.entropy_coefficient * stats["entropy"]
        return total * samples_per_step * self._weight(samples_per_step)

    def _weight(self, num_samples: float) -> float:
        """Return the weight of one of so many samples."""
        return 1.0 if self.hyperparameters.loss_reduction == "sum" else 1.0 / num_samples
