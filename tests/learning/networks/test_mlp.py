"""The hand-written network passes against autograd."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learning.networks import mlp
from learning.networks.blocks import Layer, forward
from shared.policy.blocks import Activation, Dense, dense_blocks

SIZES = [(3, 4, 5, 2), (40, 16, 1), (7, 2)]


def random_layers(sizes: tuple[int, ...], seed: int, dtype: torch.dtype) -> list[Layer]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).div_(math.sqrt(shape[-1]))

    return [
        Layer(weight=draw(sizes[i + 1], sizes[i]), bias=draw(sizes[i + 1]))
        for i in range(len(sizes) - 1)
    ]


def parameters(layers: list[Layer]) -> tuple[Tensor, ...]:
    return tuple(tensor for layer in layers for tensor in (layer.weight, layer.bias))


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": lambda a: a * (a > 0),
    "elu": lambda a: torch.where(a > 0, a, a.exp() - 1),
}


def objective(x: Tensor, target: Tensor, *flat: Tensor, blocks: tuple[Dense, ...]) -> Tensor:
    """Half the squared distance of the network's output from `target`, by plain torch."""
    h = x
    for i in range(0, len(flat), 2):
        h = h @ flat[i].t() + flat[i + 1]
        block = blocks[i // 2]
        if block.layer_norm:
            centred = h - h.mean(1, keepdim=True)
            h = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
        if block.activation is not None:
            h = ACTIVATIONS[block.activation](h)
    return 0.5 * (h - target).square().sum()


def data(sizes: tuple[int, ...], dtype: torch.dtype, count: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(count, sizes[0], generator=generator, dtype=dtype)
    return x, torch.randn(count, sizes[-1], generator=generator, dtype=dtype)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES)
def test_gradients_agree_with_autograd(
    sizes: tuple[int, ...], activation: Activation, layer_norm: bool
) -> None:
    blocks = dense_blocks(sizes, activation=activation, layer_norm=layer_norm)
    layers = random_layers(sizes, 0, torch.float64)
    gradients = random_layers(sizes, 1, torch.float64)  # garbage that must be overwritten
    x, target = data(sizes, torch.float64)
    trace, output = mlp.forward(blocks, layers, x)
    mlp.backward(blocks, layers, trace, output - target, gradients=gradients)

    leaves = [tensor.clone().requires_grad_() for tensor in parameters(layers)]
    expected = torch.autograd.grad(objective(x, target, *leaves, blocks=blocks), leaves)
    torch.testing.assert_close(forward(blocks, layers, x), output)
    for found, wanted in zip(parameters(gradients), expected, strict=True):
        torch.testing.assert_close(found, wanted)
