"""Blocks out of torch's own modules: an oracle for every backend."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shared.policy.blocks import Block, Conv, Dense, Flatten

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


class _Scaled(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images / 255


def torch_network(blocks: Iterable[Block], seed: int = 0) -> nn.Sequential:
    """The network of some blocks with random parameters."""
    torch.manual_seed(seed)
    modules: list[nn.Module] = []
    for block in blocks:
        if isinstance(block, Dense):
            modules.append(nn.Linear(block.inputs, block.outputs))
            if block.layer_norm:
                modules.append(nn.LayerNorm(block.outputs, elementwise_affine=False))
            if block.activation is not None:
                modules.append(ACTIVATIONS[block.activation]())
        elif isinstance(block, Conv):
            (top, bottom), (left, right) = block.padding
            modules.append(nn.ZeroPad2d((left, right, top, bottom)))
            modules.append(nn.Conv2d(block.channels, block.filters, block.kernel, block.stride))
            modules.append(nn.ReLU())
        else:
            modules.append(nn.Flatten() if isinstance(block, Flatten) else _Scaled())
    return nn.Sequential(*modules)


def arrays_of(network: nn.Module) -> dict[str, NDArray[np.float32]]:
    """The parameters by the names that published policies have."""
    arrays = [parameter.detach().numpy().copy() for parameter in network.parameters()]
    named = {}
    for i, (weight, bias) in enumerate(zip(arrays[0::2], arrays[1::2], strict=True)):
        named[f"policy.{i}.weight"], named[f"policy.{i}.bias"] = weight, bias
    return named
