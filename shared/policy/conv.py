"""A convolutional network in NumPy, forward only, without an allocation of images per call.

Images are kept with the channels last, so that the patch under a filter is a few runs of contiguous
numbers: every convolution is one copy of patches and one matrix product.

Legend: `B` images; `C`, `H`, `W` their channels, height and width; `D` outputs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.policy.conv_layers import ConvLayers, Convolution
from shared.policy.mlp import Float32, Forward

Image = NDArray[np.uint8] | NDArray[np.float32]

MAX_PIXEL = 255
"""Images are divided by it before they enter the network."""


class ConvNetwork:
    """Convolutions, then dense layers; rectified between layers, not after the last."""

    def __init__(
        self, layers: ConvLayers, weights: Sequence[Float32], biases: Sequence[Float32]
    ) -> None:
        """Copy the parameters.

        Args:
            layers: What the network looks like.
            weights: Of all layers, as torch keeps them: [filters, channels, height, width], then
                [out, in] of the dense layers and the output.
            biases: # [out] each.

        Raises:
            ValueError: A weight or bias is missing or of another shape than the layers'.
        """
        _check_shapes(layers, weights, biases)
        self.input_shape = layers.image_shape
        self.output_size: int = weights[-1].shape[0]
        self._layers = layers
        count = len(layers.convolutions)
        convolutions = [np.ascontiguousarray(w.transpose(2, 3, 1, 0)) for w in weights[:count]]
        self._filters = [w.reshape(-1, w.shape[-1]) for w in convolutions]
        # Folded into the first filters rather than spent on every pixel.
        self._filters[0] = self._filters[0] / np.float32(MAX_PIXEL)
        last = layers.convolutions[-1]
        first_dense = weights[count].reshape(-1, last.filters, *last.output_size)
        flat = first_dense.transpose(2, 3, 1, 0).reshape(layers.num_flat, -1)
        self._dense = [np.ascontiguousarray(flat), *(w.T.copy() for w in weights[count + 1 :])]
        self._biases = [bias.reshape(1, -1).copy() for bias in biases]

    def forward_pass(self, num_rows: int) -> Forward:
        """Return a function that computes outputs [B, D] for `num_rows` images [B, C, H, W].

        Images are uint8, or float32 of the same range. The function writes into its second
        argument, which must be C-contiguous float32, and returns that.
        """
        biases = iter(self._biases)
        size = self.input_shape[1:]
        convolutions = []
        for layer, filters in zip(self._layers.convolutions, self._filters, strict=True):
            convolutions.append((*_scratch(layer, num_rows, size), filters, next(biases)))
            size = layer.output_size
        *dense, last = zip(self._dense, biases, strict=True)
        hidden = [(w, bias, np.empty((num_rows, bias.size), np.float32)) for w, bias in dense]

        def forward(inputs: Image, out: Float32) -> Float32:
            images = first = inputs.transpose(0, 2, 3, 1)
            for inside, patches, columns, rows, products, results, filters, bias in convolutions:
                if images is first:
                    np.copyto(inside, images)
                else:
                    np.maximum(images, 0.0, out=inside)
                np.copyto(columns, patches)
                rows.dot(filters, products)
                np.add(products, bias, out=products)
                images = results
            flat = results.reshape(len(results), -1)
            for weight, bias, target in (*hidden, (*last, out)):
                np.maximum(flat, 0.0, out=flat)
                flat.dot(weight, target)
                flat = np.add(target, bias, out=target)
            return flat

        return forward


def _scratch(
    layer: Convolution, num_rows: int, size: tuple[int, ...]
) -> tuple[Float32, Float32, Float32, Float32, Float32, Float32]:
    """Return one convolution's arrays, some of them views of others.

    In order: the inside of its padded input [B, H, W, C]; the input as patches and the copy of
    those [B, H', W', kernel height, kernel width * C]; that copy as rows; the product of the rows
    with the filters [B * H' * W', filters]; and the product as images [B, H', W', filters].
    """
    (top, bottom), (left, right) = layer.padding
    height, width = size
    shape = (num_rows, height + top + bottom, width + left + right, layer.channels)
    padded = np.zeros(shape, np.float32)
    per_image, per_row, per_column, per_channel = padded.strides
    out_height, out_width = layer.output_size
    kernel_height, run = layer.kernel[0], layer.kernel[1] * layer.channels
    patches: Float32 = np.ndarray(
        (num_rows, out_height, out_width, kernel_height, run),
        np.float32,
        padded,
        strides=(
            per_image,
            per_row * layer.stride,
            per_column * layer.stride,
            per_row,
            per_channel,
        ),
    )
    columns = np.empty(patches.shape, np.float32)
    rows = columns.reshape(-1, kernel_height * run)
    products = np.empty((len(rows), layer.filters), np.float32)
    results = products.reshape(num_rows, out_height, out_width, layer.filters)
    inside = padded[:, top : top + height, left : left + width]
    return inside, patches, columns, rows, products, results


def _check_shapes(
    layers: ConvLayers, weights: Sequence[Float32], biases: Sequence[Float32]
) -> None:
    inputs = (layers.num_flat, *layers.dense)
    num_outputs = weights[-1].shape[0] if weights and weights[-1].ndim else 0
    expected: list[tuple[int, ...]] = [
        (layer.filters, layer.channels, *layer.kernel) for layer in layers.convolutions
    ]
    expected += list(zip((*layers.dense, num_outputs), inputs, strict=True))
    if not len(expected) == len(weights) == len(biases) or num_outputs < 1:
        raise ValueError(
            f"{len(weights)} weights and {len(biases)} biases, expected {len(expected)} of each"
        )
    for i, (shape, weight, bias) in enumerate(zip(expected, weights, biases, strict=True)):
        if weight.shape != shape or bias.shape != shape[:1]:
            raise ValueError(
                f"layer {i} has weight {weight.shape} and bias {bias.shape}, "
                f"expected {shape} and {shape[:1]}"
            )
