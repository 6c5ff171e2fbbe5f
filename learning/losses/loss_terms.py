"""What a loss is made of: a term of the policy and a term of the values, for tensors and arrays.

Their gradients are closed forms, so that training keeps no graph. The two terms are independent:
two threads or two processes may compute them at the same time.
"""

from collections.abc import Mapping
from typing import Generic, Protocol

from torch import Tensor

from learning.data.arrays import Array, namespace
from learning.data.batch import Minibatch
from learning.networks.distributions import Distribution, StepTerms


class Term(Protocol[Array]):
    """One term of a minibatch's loss, coefficients included."""

    def gradient(self, at: Array) -> Array:
        """Return the derivative by the network's answers `at`, of their shape.

        Those are the distribution parameters # [n, D], or the values # [n].
        """
        ...

    def stats(self) -> Array:
        """Return the means over the samples of the term's parts, where `gradient` was asked.

        They are without coefficients. # [S]
        """
        ...


class LossRule(Protocol):
    """An algorithm's loss, apart from the samples; a value that another process can be sent.

    `loss` defines it, for autograd. The two terms are the same function with its derivative in
    closed form: what training runs on, and tests hold against the definition.
    """

    def loss(
        self,
        outputs: Tensor,
        value: Tensor,
        minibatch: Minibatch[Tensor],
        distribution: Distribution,
    ) -> Tensor:
        """Return the loss of a minibatch, # [].

        Args:
            outputs: The new policy's distribution parameters. # [n, D]
            value: The new values. # [n]
            minibatch: The samples.
            distribution: What `outputs` parametrise.
        """
        ...

    @property
    def policy_stats(self) -> tuple[str, ...]:
        """Names of the policy term's stats."""
        ...

    @property
    def value_stats(self) -> tuple[str, ...]:
        """Names of the value term's stats."""
        ...

    def policy_term(self, minibatch: Minibatch[Array], terms: StepTerms[Array]) -> Term[Array]:
        """Return the policy's term over a minibatch, for actions distributed as `terms` says."""
        ...

    def value_term(self, target: Array, before: Array) -> Term[Array]:
        """Return the values' term, for their targets # [n] and values before the update # [n]."""
        ...

    def total(self, stats: Mapping[str, float], *, samples_per_step: float) -> float:
        """Return the loss that these means of the stats make, by their names."""
        ...


class MinibatchLoss(Generic[Array]):
    """A rule's loss over one minibatch: a `SplitLoss`.

    Its stats are known when both gradients have been asked for.
    """

    def __init__(
        self, rule: LossRule, minibatch: Minibatch[Array], terms: StepTerms[Array]
    ) -> None:
        """Arguments as in `LossRule`."""
        self._policy: Term[Array] = rule.policy_term(minibatch, terms)
        self._value: Term[Array] = rule.value_term(minibatch.value_target, minibatch.value)

    def policy_gradient(self, outputs: Array) -> Array:
        """Return the derivative by the outputs # [n, D], at these."""
        return self._policy.gradient(outputs)

    def value_gradient(self, value: Array) -> Array:
        """Return the derivative by the values # [n], at these."""
        return self._value.gradient(value)

    def stats(self) -> Array:
        """Return the policy's stats and then the values' # [S]."""
        parts = self._policy.stats(), self._value.stats()
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
