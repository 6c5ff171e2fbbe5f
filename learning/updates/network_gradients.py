"""Gradients of a loss over minibatches by a whole network, with derivatives in closed form.

`LossRule.loss` and autograd define them; tests compare the two.
"""

from typing import Generic, Protocol

from learning.arrays import Array
from learning.losses.loss_terms import LossRule, MinibatchLoss
from learning.networks.actor_critic import FlatGradient
from learning.networks.step_terms import SplitLoss, StepTerms
from learning.updates.gradient import Gradient
from shared.trajectory.columns import Columns


class Differentiate(Protocol[Array]):
    """`ActorCritic.differentiate` or `differentiate_arrays`."""

    def __call__(
        self, observation: Array, loss: SplitLoss[Array], *, gradient: FlatGradient
    ) -> None:
        """Write the gradient of a loss at `observation` into `gradient`."""


class NetworkGradients(Generic[Array]):
    """In torch, for every network and device, or in NumPy: a `GradientSource`."""

    def __init__(
        self,
        differentiate: Differentiate[Array],
        rule: LossRule,
        terms: StepTerms[Array],
        *,
        into: FlatGradient,
    ) -> None:
        """Compute nothing yet.

        Args:
            differentiate: The network's; its parameters when a gradient is asked for count.
            rule: The loss.
            terms: The network's distribution, or its `array_terms`.
            into: Made by the network's `new_gradient`; overwritten by every gradient.
        """
        self._differentiate: Differentiate[Array] = differentiate
        self._rule = rule
        self._terms: StepTerms[Array] = terms
        self._into = into

    def gradient(self, samples: Columns[Array]) -> Gradient:
        """Return the gradient over some samples."""
        loss: MinibatchLoss[Array] = MinibatchLoss(self._rule, samples, self._terms)
        self._differentiate(samples.observation, loss, gradient=self._into)
        return Gradient(flat=self._into.flat, stats=loss.stats())
