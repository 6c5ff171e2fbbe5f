"""The blocks of networks, as data: images, convolutions, dense layers, recurrent cells.

Each backend implements the blocks of this file: `shared.policy.numpy_network` for actors,
`learning.networks.blocks` in torch, `nitro.runs.onnx_graph`. A `FormulaBlock` has one formula for
all backends. A block with parameters has a weight of `weight_shape`, in torch's layout, and a bias
as long as the weight's first axis.

`nature_cnn` is Mnih et al., "Human-level control through deep reinforcement learning", Nature 518,
2015 (Methods, model architecture): the network of CleanRL and Stable-Baselines3. `paper_cnn` is the
network of the Nitro paper (section 8.1: 8x8, 4x4 and 11x11 filters), which RLlib builds for 84 x 84
images. `small_cnn` is for images too small for these filters: the network of MiniGrid's
documentation (minigrid.farama.org, "Training Minigrid environments").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from shared.policy.formulas import FormulaBlock
from shared.policy.recurrent import Cell, Recurrent

ConvNetworkName = Literal["nature_cnn", "paper_cnn"]
CONV_NETWORKS: tuple[ConvNetworkName, ...] = get_args(ConvNetworkName)
"""Networks that a job may choose."""
ImageNetworkName = ConvNetworkName | Literal["small_cnn"]
MIN_IMAGE_SIDE = 36
"""Smallest side, in pixels, of an image for `nature_cnn`. `small_cnn` takes smaller images."""
SMALLEST_SIDE = 4
"""Smallest side, in pixels, of an image for `small_cnn`."""
ImageShape = tuple[int, ...]
"""Channels, height and width."""
Activation = Literal["tanh", "relu", "elu"]
"""Activation after a dense layer."""

MAX_PIXEL = 255
LAYER_NORM_EPSILON = 1e-5
"""Added to the variance, as in torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """Images of bytes, divided by `MAX_PIXEL`; always the first block."""

    image_shape: ImageShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """A convolution over an image of known size, followed by ReLU."""

    channels: int
    """Channels of its input."""
    filters: int
    kernel: tuple[int, int]
    """Height and width of a filter."""
    stride: int
    padding: tuple[tuple[int, int], tuple[int, int]]
    """Zeros before and after the image, for rows and for columns."""
    output_size: tuple[int, int]
    """Height and width of its output."""

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Torch's layout: [filters, channels, height, width]."""
        return (self.filters, self.channels, *self.kernel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten:
    """Flattens images, channel by channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A linear layer, an optional layer norm without gain and bias, and an activation."""

    inputs: int
    outputs: int
    activation: Activation | None = None
    layer_norm: bool = False

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Torch's layout: [out, in]."""
        return (self.outputs, self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole third-party network as an ONNX graph; its only block."""

    observation_shape: tuple[int, ...]
    outputs: int
    size: int
    """Bytes of the graph with its weights; 0 before it is exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One network per image, whose outputs are concatenated with the plain numbers.

    Observations are flat, `image | image | ... | numbers`. It is always the first block.
    """

    image_shapes: tuple[ImageShape, ...]
    networks: tuple[tuple["Block", ...], ...]
    """The network of each image: `Pixels` first, flat outputs last."""
    numbers: int
    """Plain numbers after the images."""
    outputs: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Size of each image, then the count of plain numbers."""
        return (*map(math.prod, self.image_shapes), self.numbers)


Layer = Conv | Dense | Recurrent | FormulaBlock
"""A block with parameters."""
Block = Pixels | Flatten | Graph | Parts | Layer


def layers_of(blocks: Sequence[Block]) -> list[Layer]:
    """Return the blocks with parameters, including those of image networks."""
    layers: list[Layer] = []
    for block in blocks:
        if isinstance(block, Parts):
            layers += (layer for network in block.networks for layer in layers_of(network))
        elif isinstance(block, Layer):
            layers.append(block)
    return layers


def dense_blocks(
    sizes: Sequence[int], *, activation: Activation, layer_norm: bool = False
) -> tuple[Dense, ...]:
    """Return dense layers of these sizes; the last has no activation."""
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
    """Return dense layers of these sizes, a recurrent layer, and an output layer."""
    *hidden, _ = dense_blocks((*sizes, outputs), activation=activation, layer_norm=layer_norm)
    core = Recurrent(cell=cell, inputs=sizes[-1], units=units)
    return (*hidden, core, Dense(inputs=units, outputs=outputs))


def network_for(name: ConvNetworkName, image_shape: ImageShape) -> ImageNetworkName:
    """Return the network for images of a shape: the chosen one, or `small_cnn` for small images."""
    return name if min(image_shape[1:], default=0) >= MIN_IMAGE_SIDE else "small_cnn"


def parts_block(name: ConvNetworkName, image_shapes: Sequence[ImageShape], numbers: int) -> Parts:
    """Return a network for each image, together with plain numbers.

    Raises:
        ValueError: An image is too small for any network.
    """
    found = [_image_features(network_for(name, shape), shape) for shape in image_shapes]
    return Parts(
        image_shapes=tuple(image_shapes),
        networks=tuple(blocks for blocks, _ in found),
        numbers=numbers,
        outputs=sum(features for _, features in found) + numbers,
    )


def image_blocks(
    name: ImageNetworkName, image_shape: ImageShape, *, outputs: int
) -> tuple[Block, ...]:
    """Return the network for images of a shape (channels, height, width).

    Raises:
        ValueError: The shape is not an image's, or too small for the network.
    """
    blocks, features = _image_features(name, image_shape)
    return (*blocks, Dense(inputs=features, outputs=outputs))


def _image_features(
    name: ImageNetworkName, image_shape: ImageShape
) -> tuple[tuple[Block, ...], int]:
    """Return an image's network without its last layer, and the last layer's number of outputs."""
    if len(image_shape) != 3:
        raise ValueError(f"{name} takes images (channels, height, width), got {image_shape}")
    if name == "nature_cnn":
        convolutions = _chain(image_shape, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), same=False)
        hidden = [512]
    elif name == "small_cnn":
        convolutions = _chain(image_shape, ((16, 2, 1), (32, 2, 1), (64, 2, 1)), same=False)
        hidden = [128]
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
    sizes = [last.filters * last.output_size[0] * last.output_size[1], *hidden]
    dense = (Dense(inputs=i, outputs=o, activation="relu") for i, o in pairwise(sizes))
    return (Pixels(image_shape=image_shape), *convolutions, Flatten(), *dense), sizes[-1]


def _chain(
    image_shape: ImageShape, layers: tuple[tuple[int, int, int], ...], *, same: bool
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
    """Return the padding for ceil(side / stride) outputs; an odd zero goes to the end."""
    missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return missing // 2, missing - missing // 2
