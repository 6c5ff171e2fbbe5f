"""The passes through two networks of equal hidden layers at once, over the memory of a tensor.

Two networks of equal hidden layers lie equally far apart in one flat tensor of parameters, layer by
layer: two matrices are one array with a stride of that distance, and one call multiplies both.

Legend: N samples; O numbers of an observation; where there is an axis of length 2 in front, it is
the network.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
from torch import Tensor

from learning.cpu.numpy_mlp import (
    DenseArrays,
    Inputs,
    OneMlp,
    head_backward,
    head_forward,
    hidden_backward,
    hidden_forward,
)
from learning.data.arrays import Floats
from learning.networks.blocks import Layer


class PairedMlp:
    """The parameters of two networks, or their gradients.

    For small networks: with large ones nothing is saved by going through both at once.
    """

    def __init__(self, flat: Tensor, first: Sequence[Layer], second: Sequence[Layer]) -> None:
        """Look at two networks' layers.

        Args:
            flat: Holds them all. # [P] float32 on the CPU
            first: Views of `flat`, at least two.
            second: Views of `flat`, behind those of `first`; of equal shapes but for the last.
        """
        self._over = flat, tuple(first), tuple(second)
        self._hidden = tuple(
            DenseArrays(
                weight=_both(flat, one.weight, other.weight),
                bias=_both(flat, one.bias.unsqueeze(0), other.bias.unsqueeze(0)),
            )
            for one, other in zip(first[:-1], second[:-1], strict=True)
        )
        one, other = (
            OneMlp(
                hidden=tuple(layer.of(network) for layer in self._hidden),
                head=DenseArrays(weight=head.weight.numpy(), bias=head.bias.unsqueeze(0).numpy()),
            )
            for network, head in enumerate((first[-1], second[-1]))
        )
        self.each: tuple[OneMlp, OneMlp] = (one, other)
        """The same parameters, network by network."""

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        # A copied array would be apart from the copied tensor: a copy looks anew.
        return type(self), self._over

    def is_small(self, num_samples: int) -> bool:
        """Whether both networks are, see `OneMlp`."""
        return all(one.is_small(num_samples) for one in self.each)

    def forward(self, observation: Floats) -> tuple[Inputs, tuple[Floats, Floats]]:
        """Run `observation` # [N, O] through both; return what `OneMlp.forward` does of each."""
        inputs = hidden_forward(self._hidden, observation)
        one, other = self.each
        first, second = inputs[-1]
        return inputs, (head_forward(one.head, first), head_forward(other.head, second))

    def backward(self, inputs: Inputs, deltas: tuple[Floats, Floats], *, gradients: Self) -> None:
        """Write the parameters' gradients of an objective into `gradients`.

        Args:
            inputs: Of the forward pass; all but the observation are used up.
            deltas: Derivatives of the objective by the networks' outputs. # [N, out] each
            gradients: Written to; of the same shapes.
        """
        upstream = np.empty_like(inputs[-1])
        parts = zip(self.each, inputs[-1], deltas, gradients.each, upstream, strict=True)
        for one, h, delta, gradient, out in parts:
            head_backward(one.head, h, delta, gradient.head, out)
        hidden_backward(self._hidden, inputs, upstream, gradients._hidden)


def _both(flat: Tensor, one: Tensor, other: Tensor) -> Floats:
    """Return two views of `flat` of one shape as one array # [2, ...] over the same memory."""
    apart = other.storage_offset() - one.storage_offset()
    both = flat.as_strided((2, *one.shape), (apart, *one.stride()), one.storage_offset())
    array: Floats = both.numpy()
    return array
