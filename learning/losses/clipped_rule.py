"""What the losses of PPO and IMPACT have in common: all but the term of the values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from learning.data.arrays import Array
from learning.data.batch import Minibatch
from learning.losses.loss_terms import Term
from learning.losses.policy_terms import CLIPPED_STATS, ClippedPolicy
from learning.networks.distributions import StepTerms
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters

H = TypeVar("H", PpoHyperparameters, ImpactHyperparameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedRule(Generic[H]):
    """The clipped surrogate with entropy bonus and KL penalty: most of a `LossRule`."""

    hyperparameters: H
    kl_coefficient: float
    """The present weight of the KL term."""

    @property
    def policy_stats(self) -> tuple[str, ...]:
        """Names of the policy term's stats."""
        return CLIPPED_STATS

    def policy_term(self, minibatch: Minibatch[Array], terms: StepTerms[Array]) -> Term[Array]:
        """Return the policy's term of the loss."""
        return ClippedPolicy(
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
