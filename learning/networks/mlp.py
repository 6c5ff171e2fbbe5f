"""Multilayer perceptrons: forward and backward by hand.

A layer is `a = h_in W^T + b`, `h = f(n(a))` with an activation f and, if it is asked for, a layer
norm n: Ba et al., "Layer normalization", arXiv 1607.06450, without its gain and bias. The last
layer has neither. Written out, the derivatives need no autograd graph, which at these sizes costs
more than the arithmetic. They are tested against autograd.

Legend: N samples; L layers; `h[l]` the input of layer l, so `h[0]` is the observation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from learning.networks.blocks import Layer
from shared.policy.blocks import LAYER_NORM_EPSILON, Activation, Dense


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Values of a forward pass that the backward pass needs."""

    inputs: list[Tensor]
    """Of each layer # L x [N, in]."""
    norms: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """Of each layer norm: what it was given # [N, out], its mean and inverse deviation # [N, 1]."""


def forward(blocks: Sequence[Dense], layers: Sequence[Layer], x: Tensor) -> tuple[Trace, Tensor]:
    """Run `x` # [N, in] through the network; return the backward pass's trace, and [N, out]."""
    trace = Trace(inputs=[x])
    for block, layer in zip(blocks[:-1], layers[:-1], strict=True):
        a = functional.linear(trace.inputs[-1], layer.weight, layer.bias)
        if block.layer_norm:
            given = a
            a, mean, inverse = torch.ops.aten.native_layer_norm(
                given, [given.shape[1]], None, None, LAYER_NORM_EPSILON
            )
            trace.norms.append((given, mean, inverse))
        assert block.activation is not None, "of a hidden layer"
        trace.inputs.append(_IN_PLACE[block.activation](a))
    return trace, functional.linear(trace.inputs[-1], layers[-1].weight, layers[-1].bias)


def backward(
    blocks: Sequence[Dense],
    layers: Sequence[Layer],
    trace: Trace,
    delta: Tensor,
    *,
    gradients: Sequence[Layer],
) -> None:
    """Write the parameters' gradients of an objective into `gradients`.

    Args:
        blocks: The network.
        layers: Its parameters.
        trace: Of the forward pass over the objective's samples.
        delta: Derivative of the objective with respect to the network's output. # [N, out]
        gradients: Written to; shapes as `layers`.
    """
    for index in range(len(layers) - 1, -1, -1):
        h = trace.inputs[index]
        _write_weight_gradient(delta, h, out=gradients[index].weight)
        torch.sum(delta, 0, out=gradients[index].bias)
        if index:
            before = blocks[index - 1]
            assert before.activation is not None, "of a hidden layer"
            delta = _BACKWARD[before.activation](delta @ layers[index].weight, h)
            if before.layer_norm:
                given, mean, inverse = trace.norms[index - 1]
                delta, _, _ = torch.ops.aten.native_layer_norm_backward(
                    delta, given, [given.shape[1]], mean, inverse, None, None, [True, False, False]
                )


def _tanh_backward(upstream: Tensor, h: Tensor) -> Tensor:
    delta: Tensor = torch.ops.aten.tanh_backward.grad_input(upstream, h, grad_input=upstream)
    return delta


def _relu_backward(upstream: Tensor, h: Tensor) -> Tensor:
    delta: Tensor = torch.ops.aten.threshold_backward(upstream, h, 0)
    return delta


def _elu_backward(upstream: Tensor, h: Tensor) -> Tensor:
    # By what ELU returned: alpha, both scales, and that `h` is its result.
    delta: Tensor = torch.ops.aten.elu_backward(upstream, 1, 1, 1, True, h)
    return delta


_IN_PLACE: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": lambda a: functional.elu(a, inplace=True),
}
_BACKWARD: Mapping[Activation, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": _tanh_backward,
    "relu": _relu_backward,
    "elu": _elu_backward,
}


def _write_weight_gradient(delta: Tensor, h: Tensor, *, out: Tensor) -> None:
    if h.shape[1] < delta.shape[1]:
        # Narrow inputs: the transposed product is several times faster in every BLAS that was
        # tested.
        out[...] = (h.T @ delta).T
    else:
        out[...] = delta.T @ h
