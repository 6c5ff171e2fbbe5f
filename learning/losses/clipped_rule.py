"""The common part of the losses of PPO and IMPACT: all but the term of the values."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from learning.arrays import Array
from learning.losses.loss_terms import Term
from learning.losses.policy_terms import CLIPPED_STATS, clipped_objective, clipped_policy
from learning.networks.step_terms import StepTerms
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor

    from learning.networks.distributions import Distribution

H = TypeVar("H", bound=PpoHyperparameters | ImpactHyperparameters)


@dataclass(frozen=True, kw_only=True)
class ClippedRule(ABC, Generic[H]):
    """The clipped surrogate with entropy bonus and KL penalty: most of a `LossRule`."""

    policy_stats: ClassVar[tuple[str, ...]] = CLIPPED_STATS
    sums_samples: ClassVar[bool] = False

    hyperparameters: H
    kl_coefficient: float
    """The present weight of the KL term."""

    @abstractmethod
    def value_losses(self, value: "Tensor", minibatch: "Columns[Tensor]") -> "Tensor":
        """Return the value loss of each sample # [n], for autograd."""

    def loss(
        self,
        outputs: "Tensor",
        value: "Tensor",
        minibatch: "Columns[Tensor]",
        distribution: "Distribution",
    ) -> "Tensor":
        """Return the loss of a minibatch, # []: see `LossRule`."""
        hyperparameters = self.hyperparameters
        log_ratio = distribution.log_prob(outputs, minibatch.action) - minibatch.log_prob
        gains = clipped_objective(log_ratio, minibatch.advantage, clip=hyperparameters.clip)
        value_loss = self.value_losses(value, minibatch).mean()
        total = -gains.mean() + hyperparameters.value_coefficient * value_loss
        if hyperparameters.entropy_coefficient:
            entropy = distribution.entropy(outputs).mean()
            total = total - hyperparameters.entropy_coefficient * entropy
        if self.kl_coefficient:
            total = total + self.kl_coefficient * distribution.kl(minibatch.outputs, outputs).mean()
        return total

    def policy_term(
        self, outputs: Array, minibatch: Columns[Array], terms: StepTerms[Array]
    ) -> Term[Array]:
        """Return the policy's term of the loss."""
        return clipped_policy(
            outputs,
            minibatch,
            terms,
            clip=self.hyperparameters.clip,
            entropy_coefficient=self.hyperparameters.entropy_coefficient,
            kl_coefficient=self.kl_coefficient,
        )

    def total(
        self,
        stats: Mapping[str, float],
        *,
        samples_per_step: float,  # noqa: ARG002 - seam: the loss is a mean
    ) -> float:
        """Return the loss that these mean stats amount to."""
        total = stats["policy_loss"] + self.hyperparameters.value_coefficient * stats["value_loss"]
        total -= self.hyperparameters.entropy_coefficient * stats["entropy"]
        return total + self.kl_coefficient * stats["kl"]
