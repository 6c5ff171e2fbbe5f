"""The blocks of `shared.policy.blocks` in torch, with or without an autograd graph.

Legend: N samples.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from shared.policy.blocks import (
    LAYER_NORM_EPSILON,
    MAX_PIXEL,
    Activation,
    Block,
    Conv,
    Dense,
    Flatten,
    Parts,
    layers_of,
)
from shared.policy.formulas import FormulaBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The parameters of one block, or their gradients."""

    weight: Tensor
    bias: Tensor  # [out]


def forward(blocks: Iterable[Block], layers: Sequence[Layer], x: Tensor) -> Tensor:
    """Return the outputs of blocks for `x` # [N, ...].

    Args:
        blocks: In their order.
        layers: Of those that have parameters.
        x: Vectors, images, or flat parts.
    """
    parameters = iter(layers)
    for block in blocks:
        if isinstance(block, Dense):
            x = _dense(block, next(parameters), x)
        elif isinstance(block, Conv):
            x = _convolved(block, next(parameters), x)
        elif isinstance(block, FormulaBlock):
            layer = next(parameters)
            x = block.values(torch, layer.weight, layer.bias, x)
        elif isinstance(block, Flatten):
            x = x.flatten(1)
        elif isinstance(block, Parts):
            x = _beside(block, parameters, x)
        else:
            x = x.to(layers[0].weight.dtype) / MAX_PIXEL
    return x


def _beside(block: Parts, parameters: Iterator[Layer], x: Tensor) -> Tensor:
    """Return what the networks of the images in `x` # [N, F] give, and its numbers # [N, n]."""
    *images, numbers = torch.split(x, [*block.sizes], 1)
    features = []
    for blocks, shape, image in zip(block.networks, block.image_shapes, images, strict=True):
        layers = [next(parameters) for _ in layers_of(blocks)]
        features.append(forward(blocks, layers, image.view(-1, *shape)))
    return torch.cat((*features, numbers.to(features[0].dtype)), 1)


def _dense(block: Dense, layer: Layer, x: Tensor) -> Tensor:
    x = functional.linear(x, layer.weight, layer.bias)
    if block.layer_norm:
        x = functional.layer_norm(x, x.shape[1:], eps=LAYER_NORM_EPSILON)
    return x if block.activation is None else _ACTIVATE[block.activation](x)


def _convolved(block: Conv, layer: Layer, images: Tensor) -> Tensor:
    (top, bottom), (left, right) = block.padding
    if top or bottom or left or right:
        images = functional.pad(images, (left, right, top, bottom))
    return torch.relu(functional.conv2d(images, layer.weight, layer.bias, stride=block.stride))


_ACTIVATE: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": functional.elu,
}
"""Tanh and ReLU overwrite their input, which no gradient needs: 5 % of a gradient step of SAC."""
