"""The policy surrogate objective of a convolutional network, and its Hessian times vectors.

The same function as in `services.learner.surrogate`, with the derivatives of
`services.learner.conv_derivatives`; everything that does not depend on the direction is computed
once.
"""

import torch
from torch import Tensor

from services.learner import conv_derivatives as conv
from services.learner.conv_network import ConvActorCritic
from services.learner.mlp import Layer, split_layers
from services.learner.output_hessian import OutputHessian
from shared.conv import MAX_PIXEL


class ConvSurrogate:
    """The surrogate over fixed samples at the network's present policy; never changes either.

    Vectors over the policy's parameters, the trunk included, are ordered by layer, weight before
    bias, with a free log-standard deviation at the end.
    """

    def __init__(
        self, network: ConvActorCritic, *, observation: Tensor, action: Tensor, advantage: Tensor
    ) -> None:
        """Run the network forward and backward once.

        Args:
            network: Its present policy is theta0.
            observation: # [N, C, H, W]
            action: # [N, A] or [N] int64
            advantage: # [N]
        """
        self._ops = conv.operations(network.architecture)
        self._layers = tuple(
            Layer(weight=op.shaped(layer.get_parameter("weight")), bias=layer.get_parameter("bias"))
            for op, layer in zip(self._ops, network.policy, strict=True)
        )
        num_free = 0 if network.log_std is None else network.log_std.numel()
        self.size = num_free + sum(
            layer.weight.numel() + layer.bias.numel() for layer in self._layers
        )
        images = observation.to(network.flat.dtype) / MAX_PIXEL
        with torch.no_grad():
            self._activations = conv.forward(self._ops, self._layers, images)
            self._outputs = OutputHessian(
                network.distribution,
                outputs=network.with_log_std(self._activations.output),
                action=action,
                advantage=advantage,
                num_free=num_free,
            )
            self._deltas = conv.deltas(
                self._ops, self._layers, self._activations, self._outputs.delta
            )

    def gradient(self) -> Tensor:
        """Return the gradient of L # [size]."""
        with torch.no_grad():
            gradient = self._layers[0].weight.new_empty(self.size)
            layers, free = split_layers(gradient, self._layers)
            conv.write_gradients(
                self._ops, self._layers, self._activations, self._deltas, gradients=layers
            )
            free_delta = self._outputs.free_delta
            if free_delta is not None:
                torch.sum(free_delta, 0, out=free)
        return gradient

    def shares(self, num_trajectories: int) -> None:  # noqa: ARG002 - seam
        """Return nothing: filters' gradients are no sums of a few outer products."""

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        with torch.no_grad():
            product = torch.empty_like(direction)
            moves, free_move = split_layers(direction, self._layers)
            gradients, free_gradient = split_layers(product, self._layers)
            r_activations = conv.r_forward(self._ops, self._layers, moves, self._activations)
            r_delta, r_free_delta = self._outputs.product(r_activations.output, free_move)
            if r_free_delta is not None:
                torch.sum(r_free_delta, 0, out=free_gradient)
            conv.r_backward(
                self._ops,
                self._layers,
                moves,
                self._activations,
                r_activations,
                self._deltas,
                r_delta,
                gradients=gradients,
            )
        return product
