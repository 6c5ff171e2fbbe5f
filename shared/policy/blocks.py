"""What networks are made of, as data: images, convolutions, dense layers, recurrent cells.

Each backend has the blocks of this file in a form of its own: `shared.policy.numpy_network` for
actors, `learning.networks.blocks` in torch, `nitro.runs.onnx_graph`. A `FormulaBlock` has one
formula for all of them. A block with parameters has a weight of `weight_shape`, as torch keeps it,
and a bias as long as its first axis.

`nature_cnn` is Mnih et al., "Human-level control through deep reinforcement learning", Nature 518,
2015 (Methods, model architecture): the network of CleanRL and Stable-Baselines3. `paper_cnn` is the
one of the Nitro paper (section 8.1: 8x8, 4x4 and 11x11 filters), which is what RLlib builds for
84 x 84 images.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from shared.policy.formulas import FormulaBlock
from shared.policy.recurrent import Cell, Recurrent

ConvNetworkName = Literal["nature_cnn", "paper_cnn"]
CONV_NETWORKS: tuple[ConvNetworkName, ...] = get_args(ConvNetworkName)
Activation = Literal["tanh", "relu", "elu"]
"""What follows a dense layer."""

MAX_PIXEL = 255
LAYER_NORM_EPSILON = 1e-5
"""Added to the variance; as torch has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """Images of bytes, divided by `MAX_PIXEL`; first where there is one."""

    image_shape: tuple[int, ...]
    """Channels, height and width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """Filters over an image of known size, rectified."""

    channels: int
    """Of its input."""
    filters: int
    kernel: tuple[int, int]
    """Height and width of a filter."""
    stride: int
    padding: tuple[tuple[int, int], tuple[int, int]]
    """Zeros before and after, for rows and for columns."""
    output_size: tuple[int, int]
    """Height and width of the image it returns."""

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """As torch has it: [filters, channels, height, width]."""
        return (self.filters, self.channels, *self.kernel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten:
    """Images in a row, channel by channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A linear layer, a layer norm without gain and bias if it is asked for, an activation."""

    inputs: int
    outputs: int
    activation: Activation | None = None
    layer_norm: bool = False

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """As torch has it: [out, in]."""
        return (self.outputs, self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole network that is none of ours, as an ONNX graph; its only block."""

    observation_shape: tuple[int, ...]
    outputs: int
    size: int
    """Bytes of the graph, its numbers included; 0 before it is made."""


Layer = Conv | Dense | Recurrent | FormulaBlock
"""A block with parameters."""
Block = Pixels | Flatten | Graph | Layer


def layers_of(blocks: Sequence[Block]) -> list[Layer]:
    """Return the blocks that have parameters."""
    return [block for block in blocks if isinstance(block, Layer)]


def dense_blocks(
    sizes: Sequence[int], *, activation: Activation, layer_norm: bool = False
) -> tuple[Dense, ...]:
    """Return dense layers between so many units; nothing follows the last."""
    *hidden, (inputs, outputs) = pairwise(sizes)
    between = (
        Dense(inputs=i, outputs=o, activation=activation, layer_norm=layer_norm) for i, o in hidden
    )
    return (*between, Dense(inputs=inputs, outputs=outputs))


def recurrent_blocks(
    sizes: Sequence[int],
    cell: Cell,
    *,
    units: int,
    outputs: int,
    activation: Activation,
    layer_norm: bool = False,
) -> tuple[Block, ...]:
    """Return dense layers between so many units, a recurrent one, and what gives the outputs."""
    *hidden, _ = dense_blocks((*sizes, outputs), activation=activation, layer_norm=layer_norm)
    core = Recurrent(cell=cell, inputs=sizes[-1], units=units)
    return (*hidden, core, Dense(inputs=units, outputs=outputs))


def image_blocks(
    name: ConvNetworkName, image_shape: tuple[int, ...], *, outputs: int
) -> tuple[Block, ...]:
    """Return the network for images of a shape (channels, height, width).

    Raises:
        ValueError: The images are no such, or too small for the network.
    """
    if len(image_shape) != 3:
        raise ValueError(f"{name} takes images (channels, height, width), got {image_shape}")
    if name == "nature_cnn":
        convolutions = _chain(image_shape, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), same=False)
        hidden = [512]
    else:
        convolutions = _chain(image_shape, ((16, 8, 4), (32, 4, 2)), same=True)
        size = convolutions[-1].output_size  # 11 x 11 for 84 x 84
        whole = Conv(
            channels=32,
            filters=256,
            kernel=size,
            stride=1,
            padding=((0, 0), (0, 0)),
            output_size=(1, 1),
        )
        convolutions, hidden = (*convolutions, whole), []
    last = convolutions[-1]
    flat = last.filters * last.output_size[0] * last.output_size[1]
    dense = dense_blocks((flat, *hidden, outputs), activation="relu")
    return (Pixels(image_shape=image_shape), *convolutions, Flatten(), *dense)


def _chain(
    image_shape: tuple[int, ...], layers: tuple[tuple[int, int, int], ...], *, same: bool
) -> tuple[Conv, ...]:
    """Return square convolutions (filters, kernel, stride) one after the other."""
    channels, *size = image_shape
    chain: list[Conv] = []
    for filters, kernel, stride in layers:
        padding = [_same_padding(side, kernel, stride) if same else (0, 0) for side in size]
        padded = [side + sum(pad) for side, pad in zip(size, padding, strict=True)]
        if min(padded) < kernel:
            raise ValueError(f"images of {image_shape} are too small for filters of {kernel}")
        size = [(side - kernel) // stride + 1 for side in padded]
        chain.append(
            Conv(
                channels=channels,
                filters=filters,
                kernel=(kernel, kernel),
                stride=stride,
                padding=(padding[0], padding[1]),
                output_size=(size[0], size[1]),
            )
        )
        channels = filters
    return tuple(chain)


def _same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the zeros with which ceil(side / stride) filters fit; the odd one goes to the end."""
    missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return missing // 2, missing - missing // 2
