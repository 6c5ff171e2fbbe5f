"""A network's layout and a loss as JSON, for functions that compute gradients elsewhere.

Both accompany the weights. They are validated as strictly as any message: a layout that does not
fit the weights is refused before any computation.
"""

from typing import Annotated, Self

from pydantic import Field

from learning.aggregation.mlp_gradient import MlpGradient
from learning.losses.impact import ImpactRule
from learning.losses.loss_terms import LossRule
from learning.losses.ppo import PpoRule
from learning.networks.numpy_mlp import MlpPlaces, NetworkHalf
from shared.contracts.learner_functions import LearnerFunctions
from shared.contracts.message import Count, Message, NonNegativeFloat, PositiveInt
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters

_Place = tuple[Count, tuple[PositiveInt, ...]]
_Places = Annotated[tuple[_Place, ...], Field(min_length=2, max_length=64)]


class _Half(Message):
    """Position of one of two networks in the flat parameters."""

    start: Count
    end: Count
    weights: _Places
    biases: _Places
    log_std: tuple[Count, Count] | None

    @classmethod
    def of(cls, half: NetworkHalf) -> Self:
        log_std = None if half.log_std is None else (half.log_std.start, half.log_std.stop)
        return cls(
            start=half.start,
            end=half.end,
            weights=half.mlp.weights,
            biases=half.mlp.biases,
            log_std=log_std,
        )

    def half(self) -> NetworkHalf:
        return NetworkHalf(
            start=self.start,
            end=self.end,
            mlp=MlpPlaces(weights=self.weights, biases=self.biases),
            log_std=None if self.log_std is None else slice(*self.log_std),
        )


class NetworkLayout(Message):
    """Two networks that share nothing."""

    policy: _Half
    value: _Half

    @classmethod
    def of(cls, policy: NetworkHalf, value: NetworkHalf) -> Self:
        """Describe two halves."""
        return cls(policy=_Half.of(policy), value=_Half.of(value))

    def network(self) -> MlpGradient:
        """Return what was described."""
        return MlpGradient(policy=self.policy.half(), value=self.value.half())


class LossInWords(Message):
    """An algorithm's loss, and how functions compute its gradient."""

    ppo: PpoHyperparameters | None = None
    impact: ImpactHyperparameters | None = None
    kl_coefficient: NonNegativeFloat
    functions: LearnerFunctions

    @classmethod
    def of(cls, rule: object, functions: LearnerFunctions) -> Self:
        """Describe a rule.

        Raises:
            TypeError: Functions do not compute it.
        """
        if isinstance(rule, PpoRule):
            return cls(
                ppo=rule.hyperparameters, kl_coefficient=rule.kl_coefficient, functions=functions
            )
        if isinstance(rule, ImpactRule):
            return cls(
                impact=rule.hyperparameters,
                kl_coefficient=rule.kl_coefficient,
                functions=functions,
            )
        raise TypeError(f"functions do not compute {type(rule).__name__}")

    def rule(self) -> LossRule:
        """Return what was described.

        Raises:
            ValueError: Nothing was.
        """
        if self.ppo is not None:
            return PpoRule(hyperparameters=self.ppo, kl_coefficient=self.kl_coefficient)
        if self.impact is not None:
            return ImpactRule(hyperparameters=self.impact, kl_coefficient=self.kl_coefficient)
        raise ValueError("no loss is described")
