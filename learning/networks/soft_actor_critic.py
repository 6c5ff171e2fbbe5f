"""SAC's networks: a policy, two critics of state and action, and the critics' slow copies.

The parameters of the policy lie in one flat buffer, those of both critics in another. So an
optimiser step and a step of the slow copies are one operation each. Every weight is a leaf of
autograd that writes its gradient into a buffer of the same layout.

Legend: N samples; O numbers of an observation; A action size; P parameters.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from learning.networks.blocks import Layer, forward
from shared.policy.blocks import Dense

Outputs = Callable[[Tensor], tuple[Tensor, ...]]
"""Outputs of several networks for the same inputs: # [N, outputs] each."""


class FlatMlps:
    """Dense networks of the same sizes in one flat buffer."""

    def __init__(self, blocks: Sequence[Dense], *, number: int) -> None:
        """Lay out this many networks of these blocks, all zero."""
        weights = [block.weight_shape for block in blocks]
        shapes = [shape for weight in weights for shape in (weight, weight[:1])] * number
        num_parameters = sum(map(math.prod, shapes))
        self.flat = torch.zeros(num_parameters)  # [P]
        self.gradient = torch.zeros(num_parameters)  # [P], where `differentiate` writes
        self._blocks = tuple(blocks)
        self._leaves = _views(self.flat, shapes)
        for leaf, written in zip(self._leaves, _views(self.gradient, shapes), strict=True):
            leaf.requires_grad_()
            leaf.grad = written
        per_network = len(shapes) // number
        self.networks = tuple(
            tuple(
                Layer(weight=self._leaves[i], bias=self._leaves[i + 1])
                for i in range(first, first + per_network, 2)
            )
            for first in range(0, len(shapes), per_network)
        )
        """The layers of each."""

    def plain_layers(self) -> Sequence[Layer]:
        """Return the first network's layers."""
        return self.networks[0]

    def outputs(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return each network's outputs for the same inputs: # [N, outputs] each."""
        return tuple(forward(self._blocks, layers, inputs) for layers in self.networks)

    def differentiate(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss by these parameters alone # [P], good until the next."""
        self.gradient.zero_()
        loss.backward(inputs=self._leaves)  # type: ignore[no-untyped-call]
        return self.gradient


@torch.no_grad()
def initialise(seed: int, *mlps: FlatMlps) -> None:
    """Draw weights and biases uniformly within 1 / sqrt(inputs), as torch's own layers are."""
    generator = torch.Generator().manual_seed(seed)
    for layer in (layer for each in mlps for layers in each.networks for layer in layers):
        bound = 1.0 / math.sqrt(layer.weight.shape[1])
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)


def values(outputs: Outputs, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return both critics' values # [N] of actions # [N, A] at observations # [N, O]."""
    first, second = outputs(torch.cat((observation, action), dim=1))
    return first.squeeze(1), second.squeeze(1)


def _views(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    ends = [0]
    for shape in shapes:
        ends.append(ends[-1] + math.prod(shape))
    return [
        flat[start:end].view(shape)
        for (start, end), shape in zip(pairwise(ends), shapes, strict=True)
    ]
