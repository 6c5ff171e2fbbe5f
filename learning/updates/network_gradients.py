"""Gradients of a loss over minibatches by a whole network, with derivatives in closed form.

`LossRule.loss` and autograd define what they are; tests hold these against that.
"""

from torch import Tensor

from learning.data.arrays import Floats
from learning.data.batch import Minibatch
from learning.losses.loss_terms import LossRule, MinibatchLoss
from learning.networks.actor_critic import ActorCritic, FlatGradient
from learning.networks.distributions import StepTerms
from learning.updates.gradient import Gradient


class TorchGradients:
    """In torch, for every network and device: a `GradientSource`."""

    def __init__(
        self, network: ActorCritic, rule: LossRule, *, into: FlatGradient, policy_version: int
    ) -> None:
        """Compute nothing yet.

        Args:
            network: Where its parameters are when a gradient is asked for counts.
            rule: The loss.
            into: Made by the network's `new_gradient`; overwritten by every gradient.
            policy_version: Of the policy that the update begins with.
        """
        self._network = network
        self._rule = rule
        self._into = into
        self._policy_version = policy_version

    def gradient(self, samples: Minibatch[Tensor]) -> Gradient:
        """Return the gradient over some samples."""
        loss: MinibatchLoss[Tensor] = MinibatchLoss(self._rule, samples, self._network.distribution)
        self._network.differentiate(samples.observation, loss, gradient=self._into)
        return Gradient(
            flat=self._into.flat,
            stats=loss.stats(),
            policy_version=self._policy_version,
            num_samples=len(samples.observation),
        )


class ArrayGradients:
    """In NumPy, for networks that have `array_terms`: a `GradientSource`."""

    def __init__(
        self,
        network: ActorCritic,
        rule: LossRule,
        terms: StepTerms[Floats],
        *,
        into: FlatGradient,
        policy_version: int,
    ) -> None:
        """Take the network's `array_terms`, and what `TorchGradients` takes."""
        self._network = network
        self._rule = rule
        self._terms = terms
        self._into = into
        self._policy_version = policy_version

    def gradient(self, samples: Minibatch[Floats]) -> Gradient:
        """Return the gradient over some samples."""
        loss: MinibatchLoss[Floats] = MinibatchLoss(self._rule, samples, self._terms)
        self._network.differentiate_arrays(samples.observation, loss, gradient=self._into)
        return Gradient(
            flat=self._into.flat,
            stats=loss.stats(),
            policy_version=self._policy_version,
            num_samples=len(samples.observation),
        )
