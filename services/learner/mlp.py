"""Multilayer perceptrons with tanh layers: forward, backward and directional derivatives by hand.

A layer is `a = h_in W^T + b`, `h = tanh(a)`; the last layer has no tanh. Written out, the
derivatives need no autograd graph, which at these sizes costs more than the arithmetic. They are
tested against autograd.

Legend: N samples; L layers; `h[l]` the input of layer l, so `h[0]` is the observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor
from torch.nn import functional

from services.learner.arrays import Array, namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(Generic[Array]):
    """One dense layer's parameters, or anything of the same shape: gradients, a direction."""

    weight: Array  # [out, in]
    bias: Array  # [out]


def split_layers(
    vector: Array, like: Sequence[Layer[Array]]
) -> tuple[tuple[Layer[Array], ...], Array]:
    """Return views of a vector over parameters: the layers, and what comes after them.

    Args:
        vector: Layer by layer, weight before bias. # [P]
        like: Layers of the shapes wanted.
    """
    return split_shapes(vector, [tuple(layer.weight.shape) for layer in like])


def split_shapes(
    vector: Array, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[Layer[Array], ...], Array]:
    """Return what `split_layers` does, for layers whose weights have these shapes."""
    layers: list[Layer[Array]] = []
    start = 0
    for shape in shapes:
        middle = start + math.prod(shape)
        end = middle + shape[0]
        weight: Array = vector[start:middle].reshape(shape)
        layers.append(Layer(weight=weight, bias=vector[middle:end]))
        start = end
    return tuple(layers), vector[start:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations(Generic[Array]):
    """What a forward pass leaves for the passes after it."""

    inputs: tuple[Array, ...]  # L x [N, in]
    output: Array  # [N, out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas(Generic[Array]):
    """Derivatives of an objective with respect to each layer's `a`, and the slopes of its tanh."""

    deltas: tuple[Array, ...]  # L x [N, out]
    slopes: tuple[Array, ...]  # (L - 1) x [N, out], 1 - h^2 of the layers with a tanh
    bends: tuple[Array, ...]  # (L - 1) x [N, out], 2 delta[l + 1] W[l + 1] h, for d(1 - h^2)


def forward(layers: Sequence[Layer[Tensor]], x: Tensor) -> Activations[Tensor]:
    """Run `x` # [N, in] through the network."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(functional.linear(inputs[-1], layer.weight, layer.bias).tanh_())
    output = functional.linear(inputs[-1], layers[-1].weight, layers[-1].bias)
    return Activations(inputs=tuple(inputs), output=output)


def backward(
    layers: Sequence[Layer[Tensor]],
    activations: Activations[Tensor],
    delta: Tensor,
    *,
    gradients: Sequence[Layer[Tensor]],
) -> None:
    """Write the parameters' gradients of an objective into `gradients`.

    Args:
        layers: The network.
        activations: Of the samples the objective is over.
        delta: Derivative of the objective with respect to the network's output. # [N, out]
        gradients: Written to; shapes as `layers`.
    """
    for index in range(len(layers) - 1, -1, -1):
        h = activations.inputs[index]
        _write_weight_gradient(delta, h, out=gradients[index].weight)
        torch.sum(delta, 0, out=gradients[index].bias)
        if index:
            upstream = delta @ layers[index].weight
            delta = torch.ops.aten.tanh_backward.grad_input(upstream, h, grad_input=upstream)


def _write_weight_gradient(delta: Array, h: Array, *, out: Array) -> None:
    if h.shape[1] < delta.shape[1]:
        # Narrow inputs: the transposed product is several times faster in every BLAS we have seen.
        out[...] = (h.T @ delta).T
    else:
        out[...] = delta.T @ h


def deltas(
    layers: Sequence[Layer[Tensor]], activations: Activations[Tensor], delta: Tensor
) -> Deltas[Tensor]:
    """Return every layer's delta for directional derivatives along many directions.

    Args:
        layers: The network.
        activations: Of the samples the objective is over.
        delta: Derivative of the objective with respect to the network's output. # [N, out]
    """
    all_deltas, slopes, bends = [delta], [], []
    for index in range(len(layers) - 1, 0, -1):
        h = activations.inputs[index]
        upstream = all_deltas[-1] @ layers[index].weight
        slopes.append(1.0 - h * h)
        bends.append(2.0 * upstream * h)
        all_deltas.append(upstream * slopes[-1])
    return Deltas(
        deltas=tuple(reversed(all_deltas)),
        slopes=tuple(reversed(slopes)),
        bends=tuple(reversed(bends)),
    )


def write_gradients(
    activations: Activations[Tensor],
    at_point: Deltas[Tensor],
    *,
    gradients: Sequence[Layer[Tensor]],
) -> None:
    """Write the parameters' gradients of an objective into `gradients`.

    Args:
        activations: Of the samples the objective is over.
        at_point: The layers' `deltas`.
        gradients: Written to.
    """
    for h, delta, gradient in zip(activations.inputs, at_point.deltas, gradients, strict=True):
        _write_weight_gradient(delta, h, out=gradient.weight)
        torch.sum(delta, 0, out=gradient.bias)


def r_forward(
    layers: Sequence[Layer[Array]],
    direction: Sequence[Layer[Array]],
    activations: Activations[Array],
    slopes: Sequence[Array],
) -> Activations[Array]:
    """Return the derivative of a forward pass when the parameters move along `direction`.

    The R{.} operator of Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation
    6(1), 1994, section 3: R{a} = h_in V^T + R{h_in} W^T + v and R{h} = (1 - h^2) R{a}.
    """
    r_inputs: list[Array] = [namespace(activations.output).zeros_like(activations.inputs[0])]
    for index, (layer, move) in enumerate(zip(layers, direction, strict=True)):
        r_a = activations.inputs[index] @ move.weight.T + move.bias
        if index:
            r_a += r_inputs[-1] @ layer.weight.T
        if index < len(layers) - 1:
            r_a *= slopes[index]
        r_inputs.append(r_a)
    return Activations(inputs=tuple(r_inputs[:-1]), output=r_inputs[-1])


def r_backward(
    layers: Sequence[Layer[Array]],
    direction: Sequence[Layer[Array]],
    activations: Activations[Array],
    r_activations: Activations[Array],
    at_point: Deltas[Array],
    r_delta: Array,
    *,
    gradients: Sequence[Layer[Array]],
) -> None:
    """Write the derivative of `backward`'s gradients along `direction` into `gradients`.

    Args:
        layers: The network.
        direction: V and v of each layer.
        activations: Of the forward pass.
        r_activations: Of `r_forward` along `direction`.
        at_point: The deltas of the backward pass.
        r_delta: Derivative of the output's delta along `direction`. # [N, out]
        gradients: Written to; shapes as `layers`.
    """
    for index in range(len(layers) - 1, -1, -1):
        h, r_h = activations.inputs[index], r_activations.inputs[index]
        delta = at_point.deltas[index]
        _write_weight_gradient(r_delta, h, out=gradients[index].weight)
        gradients[index].bias[...] = r_delta.sum(0)
        if index:
            weight = gradients[index].weight
            weight += delta.T @ r_h
            r_upstream = r_delta @ layers[index].weight
            r_upstream += delta @ direction[index].weight
            r_upstream *= at_point.slopes[index - 1]
            # d(1 - h^2) = -2 h R{h}
            r_upstream -= at_point.bends[index - 1] * r_h
            r_delta = r_upstream
