"""The two convolutional networks for images, as lists of layers.

`nature_cnn` is Mnih et al., "Human-level control through deep reinforcement learning", Nature 518,
2015 (Methods, model architecture): the network of CleanRL and Stable-Baselines3. `paper_cnn` is the
one of the Nitro paper (section 8.1: 8x8, 4x4 and 11x11 filters), which is what RLlib builds for
84 x 84 images. All layers are rectified but for the output.

The learner's network (torch) and the actors' (NumPy) are both built from this description.
"""

from dataclasses import dataclass
from typing import Literal, get_args

ConvNetworkName = Literal["nature_cnn", "paper_cnn"]
CONV_NETWORKS: tuple[ConvNetworkName, ...] = get_args(ConvNetworkName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One layer of filters over an image of known size."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvLayers:
    """A whole network but for its outputs."""

    name: ConvNetworkName
    image_shape: tuple[int, ...]
    """Channels, height and width of an image."""
    convolutions: tuple[Convolution, ...]
    dense: tuple[int, ...]
    """Widths of the dense layers after them."""

    @property
    def num_filter_weights(self) -> int:
        """Weights and biases of the convolutions."""
        return sum(
            layer.filters * (layer.channels * layer.kernel[0] * layer.kernel[1] + 1)
            for layer in self.convolutions
        )

    @property
    def num_flat(self) -> int:
        """Numbers that the last convolution returns."""
        last = self.convolutions[-1]
        return last.filters * last.output_size[0] * last.output_size[1]


def conv_layers(name: ConvNetworkName, image_shape: tuple[int, ...]) -> ConvLayers:
    """Return the layers for images of a shape (channels, height, width).

    Raises:
        ValueError: The images are no such, or too small for the network.
    """
    if len(image_shape) != 3:
        raise ValueError(f"{name} takes images (channels, height, width), got {image_shape}")
    if name == "nature_cnn":
        layers = _chain(image_shape, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), same=False)
        return ConvLayers(name=name, image_shape=image_shape, convolutions=layers, dense=(512,))
    layers = _chain(image_shape, ((16, 8, 4), (32, 4, 2)), same=True)
    size = layers[-1].output_size  # 11 x 11 for 84 x 84
    whole = Convolution(
        channels=32,
        filters=256,
        kernel=size,
        stride=1,
        padding=((0, 0), (0, 0)),
        output_size=(1, 1),
    )
    return ConvLayers(name=name, image_shape=image_shape, convolutions=(*layers, whole), dense=())


def _chain(
    image_shape: tuple[int, ...], layers: tuple[tuple[int, int, int], ...], *, same: bool
) -> tuple[Convolution, ...]:
    """Return square convolutions (filters, kernel, stride) one after the other."""
    channels, *size = image_shape
    chain: list[Convolution] = []
    for filters, kernel, stride in layers:
        padding = [_same_padding(side, kernel, stride) if same else (0, 0) for side in size]
        padded = [side + sum(pad) for side, pad in zip(size, padding, strict=True)]
        if min(padded) < kernel:
            raise ValueError(f"images of {image_shape} are too small for filters of {kernel}")
        size = [(side - kernel) // stride + 1 for side in padded]
        chain.append(
            Convolution(
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
