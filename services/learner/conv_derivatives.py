"""Rectified convolutional networks: forward, backward and directional derivatives by hand.

A layer lays its input out (padding, flattening), multiplies it with its weight (a convolution or a
matrix product), adds its bias and rectifies; the last layer is not rectified. Autograd would take
a product with the Hessian through the derivative of the derivative of a convolution, which no
library has a fast kernel for; by hand it is nothing but convolutions and their two adjoints, in
the memory layout they are fastest in (channels last). A rectifier has no curvature of its own: the
derivatives are those of the piece the parameters are on.

Legend: N samples; C, H, W an image's channels, height and width; L layers; `h[l]` what layer l
takes in, so `h[0]` are the images; `x[l]` the same, laid out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from services.learner.mlp import Layer
from shared.conv_layers import ConvLayers, Convolution

_NO_PADDING = ((0, 0), (0, 0))


class Operation(Protocol):
    """The product of one layer: linear in its input and in its weight."""

    def shaped(self, weight: Tensor) -> Tensor:
        """Return a view of a weight in the form that the other methods take."""
        ...

    def lay_out(self, h: Tensor) -> Tensor:
        """Return `x`, the form of the input that the other methods take."""
        ...

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the product, with a bias added if there is one."""
        ...

    def input_adjoint(self, delta: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient for `h`, given that for the product; of `x` only the shape counts."""
        ...

    def weight_adjoint(self, delta: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient for the weight, of which itself only the shape counts."""
        ...


@dataclass(frozen=True, slots=True)
class Filters:
    """A convolution of images # [N, C, H, W] with a weight # [filters, C, height, width]."""

    layer: Convolution

    def shaped(self, weight: Tensor) -> Tensor:
        """Return it as it is."""
        return weight

    def lay_out(self, h: Tensor) -> Tensor:
        """Pad."""
        (top, bottom), (left, right) = self.layer.padding
        if top or bottom or left or right:
            h = functional.pad(h, (left, right, top, bottom))
        return h.contiguous(memory_format=torch.channels_last)

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `Operation`."""
        return functional.conv2d(x, weight, bias, stride=self.layer.stride)

    def input_adjoint(self, delta: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `Operation`."""
        (top, bottom), (left, right) = self.layer.padding
        d_x = self._adjoints(delta, x, weight, [True, False, False])[0]
        return d_x[:, :, top : d_x.shape[2] - bottom, left : d_x.shape[3] - right]

    def weight_adjoint(self, delta: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `Operation`."""
        return self._adjoints(delta, x, weight, [False, True, False])[1]

    def _adjoints(
        self, delta: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        stride = [self.layer.stride] * 2
        adjoints: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward.default(
            delta, x, weight, None, stride, [0, 0], [1, 1], False, [0, 0], 1, wanted
        )
        return adjoints


@dataclass(frozen=True, slots=True)
class Dense:
    """A matrix product of vectors, or of whole images, with a weight # [out, in]."""

    shape: tuple[int, ...]
    """Of one sample of the input: (C, H, W) or (in,)."""

    def shaped(self, weight: Tensor) -> Tensor:
        """Flatten what filters as large as the image are."""
        return weight.flatten(1)

    def lay_out(self, h: Tensor) -> Tensor:
        """Flatten."""
        return h.flatten(1)

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `Operation`."""
        return functional.linear(x, weight, bias)

    def input_adjoint(self, delta: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `Operation`."""
        d_h = (delta @ weight).view(-1, *self.shape)
        images = d_h.ndim == 4
        return d_h.contiguous(memory_format=torch.channels_last) if images else d_h

    def weight_adjoint(self, delta: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `Operation`."""
        return delta.t() @ x


def operations(layers: ConvLayers) -> tuple[Operation, ...]:
    """Return what the layers of a network do, the output's included # L of them.

    A convolution as large as its image is a matrix product, and done as one.
    """
    found: list[Operation] = []
    shape = layers.image_shape
    for layer in layers.convolutions:
        whole = layer.kernel == shape[1:] and layer.padding == _NO_PADDING
        found.append(Dense(shape) if whole else Filters(layer))
        shape = (layer.filters,) if whole else (layer.filters, *layer.output_size)
    for width in layers.dense:
        found.append(Dense(shape))
        shape = (width,)
    return (*found, Dense(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """What a forward pass leaves for the passes after it."""

    inputs: tuple[Tensor, ...]  # L x h
    laid_out: tuple[Tensor, ...]  # L x x
    output: Tensor  # [N, out]


@dataclass(frozen=True, slots=True, kw_only=True)
class RActivations:
    """The derivative of a forward pass along a direction; the images never move."""

    laid_out: tuple[Tensor, ...]  # (L - 1) x R{x}, of the layers after the first
    output: Tensor  # [N, out]


def forward(
    ops: Sequence[Operation], layers: Sequence[Layer[Tensor]], images: Tensor
) -> Activations:
    """Run images # [N, C, H, W] through the network."""
    inputs, laid_out = [images], []
    for op, layer in zip(ops, layers, strict=True):
        laid_out.append(op.lay_out(inputs[-1]))
        a = op.apply(laid_out[-1], layer.weight, layer.bias)
        inputs.append(torch.relu(a))
    return Activations(inputs=tuple(inputs[:-1]), laid_out=tuple(laid_out), output=a)


def deltas(
    ops: Sequence[Operation],
    layers: Sequence[Layer[Tensor]],
    activations: Activations,
    delta: Tensor,
) -> tuple[Tensor, ...]:
    """Return the derivatives of an objective with respect to each layer's product # L.

    Args:
        ops: What the layers do.
        layers: The network.
        activations: Of the samples the objective is over.
        delta: The last of them. # [N, out]
    """
    found = [delta]
    for index in range(len(layers) - 1, 0, -1):
        x, h = activations.laid_out[index], activations.inputs[index]
        upstream = ops[index].input_adjoint(found[-1], x, layers[index].weight)
        found.append(_through_rectifier(upstream, h))
    return tuple(reversed(found))


def write_gradients(
    ops: Sequence[Operation],
    layers: Sequence[Layer[Tensor]],
    activations: Activations,
    at_point: Sequence[Tensor],
    *,
    gradients: Sequence[Layer[Tensor]],
) -> None:
    """Write the parameters' gradients of an objective into `gradients`.

    Args:
        ops: What the layers do.
        layers: The network; only its shapes count.
        activations: Of the samples the objective is over.
        at_point: The layers' `deltas`.
        gradients: Written to; shapes as `layers`.
    """
    for index, delta in enumerate(at_point):
        x, into = activations.laid_out[index], gradients[index]
        into.weight.copy_(ops[index].weight_adjoint(delta, x, layers[index].weight))
        torch.sum(delta, _all_but_channels(delta), out=into.bias)


def r_forward(
    ops: Sequence[Operation],
    layers: Sequence[Layer[Tensor]],
    direction: Sequence[Layer[Tensor]],
    activations: Activations,
) -> RActivations:
    """Return the derivative of a forward pass when the parameters move along `direction`.

    The R{.} operator of Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation
    6(1), 1994, section 3: with V and v the direction, R{a} = x V + R{x} W + v.
    """
    r_laid_out: list[Tensor] = []
    for index, (op, layer, move) in enumerate(zip(ops, layers, direction, strict=True)):
        r_a = op.apply(activations.laid_out[index], move.weight, move.bias)
        if index:
            r_a += op.apply(r_laid_out[-1], layer.weight, None)
        if index < len(layers) - 1:
            r_h = _through_rectifier(r_a, activations.inputs[index + 1])
            r_laid_out.append(ops[index + 1].lay_out(r_h))
    return RActivations(laid_out=tuple(r_laid_out), output=r_a)


def r_backward(
    ops: Sequence[Operation],
    layers: Sequence[Layer[Tensor]],
    direction: Sequence[Layer[Tensor]],
    activations: Activations,
    r_activations: RActivations,
    at_point: Sequence[Tensor],
    r_delta: Tensor,
    *,
    gradients: Sequence[Layer[Tensor]],
) -> None:
    """Write the derivative of the parameters' gradients along `direction` into `gradients`.

    Args:
        ops: What the layers do.
        layers: The network.
        direction: V and v of each layer.
        activations: Of the forward pass.
        r_activations: Of `r_forward` along `direction`.
        at_point: The layers' `deltas`.
        r_delta: Derivative of the output's delta along `direction`. # [N, out]
        gradients: Written to; shapes as `layers`.
    """
    for index in range(len(layers) - 1, -1, -1):
        op, x, delta = ops[index], activations.laid_out[index], at_point[index]
        weight, move = layers[index].weight, direction[index].weight
        gradients[index].weight.copy_(op.weight_adjoint(r_delta, x, weight))
        torch.sum(r_delta, _all_but_channels(r_delta), out=gradients[index].bias)
        if index:
            r_x = r_activations.laid_out[index - 1]
            gradients[index].weight.add_(op.weight_adjoint(delta, r_x, weight))
            upstream = op.input_adjoint(r_delta, x, weight)
            upstream += op.input_adjoint(delta, x, move)
            r_delta = _through_rectifier(upstream, activations.inputs[index])


def _all_but_channels(delta: Tensor) -> tuple[int, ...]:
    return (0, *range(2, delta.ndim))


def _through_rectifier(upstream: Tensor, h: Tensor) -> Tensor:
    """Return `upstream` where the rectified `h` is positive, else 0; in its own memory.

    New memory for tensors of this size costs more than the arithmetic.
    """
    passed: Tensor = torch.ops.aten.threshold_backward.grad_input(
        upstream, h, 0.0, grad_input=upstream
    )
    return passed
