"""The policy surrogate objective at the new policy, and its Hessian as products with vectors.

    L(theta) = mean_i A_i pi_theta(a_i|s_i) / pi_theta0(a_i|s_i),   to be maximised,

over the policy's parameters, at theta = theta0. There the ratio is exactly 1, no sample is
clipped, and its Hessian with respect to the policy's outputs has the closed form of
`services.learner.output_hessian`. Products with the Hessian over the parameters follow by
Pearlmutter's R operator in two passes through the network; everything that does not depend on the
direction is computed once.
"""

from typing import Protocol

import torch
from torch import Tensor

from services.learner import mlp
from services.learner.conv_network import ConvActorCritic
from services.learner.conv_surrogate import ConvSurrogate
from services.learner.gradient_noise import gradient_products
from services.learner.mlp import split_layers
from services.learner.networks import ActorCritic, MlpActorCritic
from services.learner.output_hessian import OutputHessian


class Surrogate(Protocol):
    """The surrogate over fixed samples at a network's present policy; never changes either."""

    size: int
    """Parameters of the policy."""

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        ...


class PolicySurrogate:
    """The surrogate of a tanh MLP.

    Vectors over the policy's parameters are ordered by layer, weight before bias, with a free
    log-standard deviation at the end.
    """

    def __init__(
        self, network: MlpActorCritic, *, observation: Tensor, action: Tensor, advantage: Tensor
    ) -> None:
        """Run the network forward and backward once.

        Args:
            network: Its present policy is theta0.
            observation: # [N, O]
            action: # [N, A] or [N] int64
            advantage: # [N]
        """
        self._layers = network.layers("policy", network.views_of(network.flat))
        num_free = 0 if network.log_std is None else network.log_std.numel()
        self.size = num_free + sum(
            layer.weight.numel() + layer.bias.numel() for layer in self._layers
        )
        with torch.no_grad():
            self._activations = mlp.forward(self._layers, observation)
            self._outputs = OutputHessian(
                network.distribution,
                outputs=network.with_log_std(self._activations.output),
                action=action,
                advantage=advantage,
                num_free=num_free,
            )
            self._at_point = mlp.deltas(self._layers, self._activations, self._outputs.delta)

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        with torch.no_grad():
            product = torch.empty_like(direction)
            moves, free_move = split_layers(direction, self._layers)
            gradients, free_gradient = split_layers(product, self._layers)
            r_activations = mlp.r_forward(
                self._layers, moves, self._activations, self._at_point.slopes
            )
            r_delta, r_free_delta = self._outputs.product(r_activations.output, free_move)
            if r_free_delta is not None:
                torch.sum(r_free_delta, 0, out=free_gradient)
            mlp.r_backward(
                self._layers,
                moves,
                self._activations,
                r_activations,
                self._at_point,
                r_delta,
                gradients=gradients,
            )
        return product

    def gradient_products(self) -> Tensor:
        """Return the inner products of the samples' contributions to L's gradient # [N, N]."""
        with torch.no_grad():
            return gradient_products(
                self._activations.inputs, self._at_point.deltas, self._outputs.free_delta
            )


def policy_surrogate(
    network: ActorCritic, *, observation: Tensor, action: Tensor, advantage: Tensor
) -> Surrogate:
    """Return the surrogate of whatever network a job has.

    Args:
        network: Its present policy is theta0.
        observation: # [N, ...]
        action: # [N, A] or [N] int64
        advantage: # [N]

    Raises:
        TypeError: The network is of a kind that has no surrogate.
    """
    if isinstance(network, MlpActorCritic):
        return PolicySurrogate(network, observation=observation, action=action, advantage=advantage)
    if isinstance(network, ConvActorCritic):
        return ConvSurrogate(network, observation=observation, action=action, advantage=advantage)
    raise TypeError(f"no surrogate for a {type(network).__name__}")
