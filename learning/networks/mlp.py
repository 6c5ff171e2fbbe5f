"""Multilayer perceptrons with tanh layers: forward and backward by hand.

A layer is `a = h_in W^T + b`, `h = tanh(a)`; the last layer has no tanh. Written out, the
derivatives need no autograd graph, which at these sizes costs more than the arithmetic. They are
tested against autograd.

Legend: N samples; L layers; `h[l]` the input of layer l, so `h[0]` is the observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One dense layer's parameters, or their gradients."""

    weight: Tensor  # [out, in]
    bias: Tensor  # [out]


def forward(layers: Sequence[Layer], x: Tensor) -> tuple[list[Tensor], Tensor]:
    """Run `x` # [N, in] through the network; return its layers' L inputs, and [N, out]."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(functional.linear(inputs[-1], layer.weight, layer.bias).tanh_())
    return inputs, functional.linear(inputs[-1], layers[-1].weight, layers[-1].bias)


def differentiable(layers: Sequence[Layer], x: Tensor) -> Tensor:
    """Return the output of `forward` with a graph behind it, for autograd."""
    for layer in layers[:-1]:
        x = functional.linear(x, layer.weight, layer.bias).tanh()
    return functional.linear(x, layers[-1].weight, layers[-1].bias)


def backward(
    layers: Sequence[Layer], inputs: Sequence[Tensor], delta: Tensor, *, gradients: Sequence[Layer]
) -> None:
    """Write the parameters' gradients of an objective into `gradients`.

    Args:
        layers: The network.
        inputs: Of the forward pass over the objective's samples.
        delta: Derivative of the objective with respect to the network's output. # [N, out]
        gradients: Written to; shapes as `layers`.
    """
    for index in range(len(layers) - 1, -1, -1):
        h = inputs[index]
        _write_weight_gradient(delta, h, out=gradients[index].weight)
        torch.sum(delta, 0, out=gradients[index].bias)
        if index:
            upstream = delta @ layers[index].weight
            delta = torch.ops.aten.tanh_backward.grad_input(upstream, h, grad_input=upstream)


def _write_weight_gradient(delta: Tensor, h: Tensor, *, out: Tensor) -> None:
    if h.shape[1] < delta.shape[1]:
        # Narrow inputs: the transposed product is several times faster in every BLAS we have seen.
        out[...] = (h.T @ delta).T
    else:
        out[...] = delta.T @ h
