"""The terms of a loss: one of the policy and one of the values, for tensors and arrays.

Their gradients are closed forms, so that training keeps no graph. The two terms are independent:
two threads or two processes may compute them at the same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol

from learning.arrays import Array, namespace
from learning.networks.step_terms import StepTerms
from shared.trajectory.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor

    from learning.networks.distributions import Distribution


@dataclass(frozen=True, slots=True)
class Term(Generic[Array]):
    """One term of a minibatch's loss, at some outputs of the network."""

    gradient: Array  # derivative by the outputs, of their shape, coefficients included
    stats: Array  # [S], means over the samples of the term's parts, without coefficients


class LossRule(Protocol):
    """An algorithm's loss, without the samples; a value that can be sent to another process.

    `loss` defines it, for autograd. The two terms are the same function with its derivative in
    closed form. Training uses the terms; tests compare them with the definition.
    """

    policy_stats: ClassVar[tuple[str, ...]]
    """Names of the policy term's stats."""
    value_stats: ClassVar[tuple[str, ...]]
    """Names of the value term's stats."""

    @property
    def sums_samples(self) -> bool:
        """Whether the loss of a minibatch is the sum over its samples, not the mean."""
        ...

    def loss(
        self,
        outputs: "Tensor",
        value: "Tensor",
        minibatch: "Columns[Tensor]",
        distribution: "Distribution",
    ) -> "Tensor":
        """Return the loss of a minibatch, # [].

        Args:
            outputs: The new policy's distribution parameters. # [n, D]
            value: The new values. # [n]
            minibatch: The samples.
            distribution: Parametrised by `outputs`.
        """
        ...

    def policy_term(
        self, outputs: Array, minibatch: Columns[Array], terms: StepTerms[Array]
    ) -> Term[Array]:
        """Return the policy's term at its outputs # [n, D], distributed as `terms` says."""
        ...

    def value_term(self, value: Array, target: Array, before: Array) -> Term[Array]:
        """Return the values' term, for their targets and values before the update; # [n] each."""
        ...

    def total(self, stats: Mapping[str, float], *, samples_per_step: float) -> float:
        """Return the loss that these means of the stats make, by their names."""
        ...


class MinibatchLoss(Generic[Array]):
    """A rule's loss over one minibatch: a `SplitLoss`.

    Its stats are known after both gradients.
    """

    _policy: Term[Array]
    _value: Term[Array]

    def __init__(self, rule: LossRule, minibatch: Columns[Array], terms: StepTerms[Array]) -> None:
        self._rule = rule
        self._minibatch: Columns[Array] = minibatch
        self._terms: StepTerms[Array] = terms

    def policy_gradient(self, outputs: Array) -> Array:
        """Return the derivative by the outputs # [n, D], at these."""
        self._policy = self._rule.policy_term(outputs, self._minibatch, self._terms)
        return self._policy.gradient

    def value_gradient(self, value: Array) -> Array:
        """Return the derivative by the values # [n], at these."""
        minibatch = self._minibatch
        self._value = self._rule.value_term(value, minibatch.value_target, minibatch.value)
        return self._value.gradient

    def stats(self) -> Array:
        """Return the policy's stats and then the values' # [S]."""
        parts = self._policy.stats, self._value.stats
        joined: Array = namespace(parts[0]).concatenate(parts)
        return joined


def stat_names(rule: LossRule) -> tuple[str, ...]:
    """Return the names of a minibatch's stats, in their order."""
    return (*rule.policy_stats, *rule.value_stats)


def means(*per_sample: Array) -> Array:
    """Return the mean of each of some arrays # [n]."""
    # One long array instead of a stack: NumPy is several times faster at it.
    joined = namespace(per_sample[0]).concatenate(per_sample)
    found: Array = joined.reshape(len(per_sample), -1).sum(1) / len(per_sample[0])
    return found
