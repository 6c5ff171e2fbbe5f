"""A policy's network in NumPy, forward only, without allocating images per call.

Images are stored channels-last, so that the patch under a filter is a few runs of contiguous
numbers. Each convolution is one copy of patches and one matrix product.

Legend: `B` rows; `F` inputs, or `C`, `H`, `W` an image's channels, height and width; `D` outputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.blocks import (
    LAYER_NORM_EPSILON,
    MAX_PIXEL,
    Activation,
    Block,
    Conv,
    Dense,
    Layer,
    Parts,
    Pixels,
    layers_of,
)
from shared.policy.formulas import FormulaBlock
from shared.policy.recurrent import Recurrent
from shared.policy.spec import PolicySpec

Float32 = NDArray[np.float32]
Forward = Callable[[NDArray[Any], Float32], Float32]
"""Computes a network's outputs for inputs, in an array that it also returns."""
_Parameters = tuple[Float32, Float32]
_Values = Callable[[Float32], Float32]


class NumpyNetwork:
    """Image networks, if any, then dense layers, one of which may follow recurrent cells."""

    def __init__(self, spec: PolicySpec, arrays: Mapping[str, Float32]) -> None:
        """Copy the parameters, whose shapes `spec.require` has checked."""
        self.input_shape = spec.observation_shape
        self.output_size = spec.head.num_outputs
        self._dense: list[tuple[Dense, _Parameters, list[_Values]]] = []
        """Dense layers, each with the functions of the blocks after it."""
        self._cells: _Cells | None = None
        self._images: _Image | _Parts | None = None
        """The image networks before the dense layers."""
        given = (
            (arrays[f"policy.{i}.weight"], arrays[f"policy.{i}.bias"])
            for i in range(len(spec.layers))
        )
        first, behind = spec.blocks[0], spec.blocks
        if isinstance(first, Parts):
            self._images, behind = _Parts(first, given), behind[1:]
        elif isinstance(first, Pixels):
            self._images, behind = _Image(behind[:-1], given), behind[-1:]
        for layer, (weight, bias) in zip(layers_of(behind), given, strict=True):
            if isinstance(layer, Dense):
                self._dense.append((layer, _laid_out(weight, bias), []))
            elif isinstance(layer, Recurrent):
                self._cells = _Cells(layer, *_laid_out(weight, bias))
            elif isinstance(layer, FormulaBlock):
                values = partial(layer.values, np, weight.copy(), bias.copy())
                self._dense[-1][2].append(values)

    def forward_pass(self, num_rows: int, state: Float32 | None = None) -> Forward:
        """Return a function that computes outputs [B, D] for `num_rows` inputs.

        Each call advances a recurrent network's state [B, S] by one step, in place.

        Inputs are [B, F] float32, or images [B, C, H, W] or flat parts [B, F] in uint8, or in
        float32 of the same range. The function writes into its second argument, which must be
        C-contiguous float32, and returns it. Tanh and ReLU allocate nothing.
        """
        seen = self._images.over(num_rows) if self._images else None
        *hidden, (_, (last_weight, last_bias), _) = self._dense
        steps = [
            (weight, bias, np.empty((num_rows, bias.size), np.float32), *_after(block, behind))
            for block, (weight, bias), behind in hidden
        ]
        if self._cells is not None:
            block, _, behind = hidden[-1]
            after = _after(block, [*behind, self._cells.over(num_rows, state)])
            steps[-1] = (*steps[-1][:3], *after)

        def forward(inputs: NDArray[Any], out: Float32) -> Float32:
            values = inputs if seen is None else seen(inputs)
            for weight, bias, buffer, layer_norm, activate in steps:
                values.dot(weight, buffer)
                np.add(buffer, bias, buffer)
                if layer_norm:
                    _normalise(buffer)
                values = activate(buffer, buffer)
            values.dot(last_weight, out)
            return np.add(out, last_bias, out)

        return forward


class _Image:
    """An image's network: convolutions, then dense layers, all with ReLU."""

    def __init__(self, blocks: Sequence[Block], given: Iterator[_Parameters]) -> None:
        """Take the blocks' parameters."""
        assert isinstance(blocks[0], Pixels), "what sees an image begins with it"
        self._shape = blocks[0].image_shape
        self._convolutions: list[tuple[Conv, _Parameters]] = []
        self._dense: list[_Parameters] = []
        before: Layer | None = None
        for layer, (weight, bias) in zip(layers_of(blocks), given, strict=False):
            if isinstance(layer, Conv):
                self._convolutions.append((layer, _filters(weight, bias, first=before is None)))
            else:
                self._dense.append(_laid_out(weight, bias, before))
            before = layer
        ends = not isinstance(before, Conv) or before.output_size == (1, 1)
        assert ends, "channels would be last in what is returned"

    def over(self, num_rows: int) -> Callable[[NDArray[Any]], Float32]:
        """Return a function from images [B, C, H, W] to flat outputs [B, n]."""
        convolved = self._convolved(num_rows)
        dense = [(*each, np.empty((num_rows, each[1].size), np.float32)) for each in self._dense]

        def outputs(inputs: NDArray[Any]) -> Float32:
            values = convolved(inputs)
            for weight, bias, buffer in dense:
                values.dot(weight, buffer)
                np.add(buffer, bias, buffer)
                values = np.maximum(buffer, 0.0, out=buffer)
            return values

        return outputs

    def _convolved(self, num_rows: int) -> Callable[[NDArray[Any]], Float32]:
        """Return a function from images to flat outputs [B, n] of the last convolution."""
        size = self._shape[1:]
        steps = []
        for layer, parameters in self._convolutions:
            steps.append((*_scratch(layer, num_rows, size), *parameters))
            size = layer.output_size

        def convolved(inputs: NDArray[Any]) -> Float32:
            images = first = inputs.transpose(0, 2, 3, 1)
            for inside, patches, columns, rows, products, results, filters, bias in steps:
                if images is first:
                    np.copyto(inside, images)
                else:
                    np.maximum(images, 0.0, out=inside)
                np.copyto(columns, patches)
                rows.dot(filters, products)
                np.add(products, bias, out=products)
                images = results
            flat = results.reshape(len(results), -1)
            return np.maximum(flat, 0.0, out=flat)

        return convolved


class _Parts:
    """Outputs of image networks, concatenated with plain numbers."""

    def __init__(self, block: Parts, given: Iterator[_Parameters]) -> None:
        """Take the parameters of all image networks."""
        self._block = block
        self._images = [_Image(network, given) for network in block.networks]

    def over(self, num_rows: int) -> Callable[[NDArray[Any]], Float32]:
        """Return a function from flat observations [B, F] to features [B, n]."""
        block = self._block
        ends = np.cumsum(block.sizes)[:-1]
        steps = [
            (shape, image.over(num_rows))
            for shape, image in zip(block.image_shapes, self._images, strict=True)
        ]
        features = np.empty((num_rows, block.outputs), np.float32)

        def outputs(inputs: NDArray[Any]) -> Float32:
            *images, numbers = np.split(inputs, ends, axis=1)
            begin = 0
            for (shape, seen), image in zip(steps, images, strict=True):
                values = seen(image.reshape(num_rows, *shape))
                features[:, begin : begin + values.shape[1]] = values
                begin += values.shape[1]
            features[:, begin:] = numbers
            return features

        return outputs


class _Cells:
    """Recurrent cells, with the two parts of their weight laid out for matrix products."""

    def __init__(self, block: Recurrent, weight: Float32, bias: Float32) -> None:
        """Take a weight [I + U, G] and a bias [1, G]."""
        self._block = block
        self._of_input, self._of_state = weight[: block.inputs], weight[block.inputs :]
        self._bias = bias

    def over(self, num_rows: int, state: Float32 | None) -> _Values:
        """Return a function from values [B, I] to outputs [B, U] that advances the state."""
        block, units = self._block, self._block.units
        kept = np.zeros((num_rows, block.state_size), np.float32) if state is None else state

        def outputs(values: Float32) -> Float32:
            given = np.add(values.dot(self._of_input), self._bias)
            recalled = np.ascontiguousarray(kept[:, :units]).dot(self._of_state)
            kept[...] = block.following(np, given, recalled, kept)
            return np.ascontiguousarray(kept[:, :units])

        return outputs


def _filters(weight: Float32, bias: Float32, *, first: bool) -> _Parameters:
    """Return a convolution's parameters, laid out for matrix products."""
    filters = np.ascontiguousarray(weight.transpose(2, 3, 1, 0)).reshape(-1, weight.shape[0])
    # The first filters absorb the scaling of pixels.
    return filters / np.float32(MAX_PIXEL) if first else filters, _row(bias)


def _laid_out(weight: Float32, bias: Float32, before: Layer | None = None) -> _Parameters:
    """Return a layer's parameters, laid out for matrix products, given the previous layer."""
    if isinstance(before, Conv):  # its outputs are channels-last
        images = weight.reshape(-1, before.filters, *before.output_size)
        rows = images.transpose(2, 3, 1, 0).reshape(weight.shape[1], -1)
        return np.ascontiguousarray(rows), _row(bias)
    return np.ascontiguousarray(weight.T), _row(bias)


def _row(bias: Float32) -> Float32:
    """Return biases [1, n]: adding them to one row of values needs no broadcasting.

    In NumPy broadcasting would cost more than the addition itself.
    """
    return bias.reshape(1, -1).copy()


def _after(
    block: Dense, behind: Sequence[_Values]
) -> tuple[bool, Callable[[Float32, Float32], Float32]]:
    """Return whether a layer norm follows, then the activation and all functions after it."""
    assert block.activation is not None, "of a hidden layer"
    activate = _ACTIVATE[block.activation]
    if not behind:
        return block.layer_norm, activate

    def activated(values: Float32, out: Float32) -> Float32:
        values = activate(values, out)
        for each in behind:
            values = each(values)
        return values

    return block.layer_norm, activated


def _normalise(values: Float32) -> None:
    """Give each row mean 0 and variance 1."""
    values -= values.mean(axis=1, keepdims=True)
    variance = np.square(values).mean(axis=1, keepdims=True)
    values /= np.sqrt(variance + np.float32(LAYER_NORM_EPSILON))


def _relu(values: Float32, out: Float32) -> Float32:
    return np.maximum(values, 0.0, out=out)


def _elu(values: Float32, out: Float32) -> Float32:
    below: Float32 = np.expm1(np.minimum(values, 0.0))
    np.maximum(values, 0.0, out=out)
    return np.add(out, below, out=out)


_ACTIVATE: Mapping[Activation, Callable[[Float32, Float32], Float32]] = {
    "tanh": np.tanh,
    "relu": _relu,
    "elu": _elu,
}


def _scratch(
    layer: Conv, num_rows: int, size: tuple[int, ...]
) -> tuple[Float32, Float32, Float32, Float32, Float32, Float32]:
    """Return one convolution's arrays, some of which are views of others.

    In order: the interior of its padded input [B, H, W, C]; the input as patches and a copy of the
    patches [B, H', W', kernel height, kernel width * C]; the copy as rows; the product of the rows
    and the filters [B * H' * W', filters]; and the product as images [B, H', W', filters].
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
