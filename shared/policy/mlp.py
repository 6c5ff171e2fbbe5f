"""A multi-layer perceptron in NumPy, forward only. Tanh and ReLU allocate nothing per call.

Legend: `B` rows, `F` inputs, `H` outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.hyperparameters.common import Activation

Float32 = NDArray[np.float32]
Forward = Callable[[NDArray[Any], Float32], Float32]
"""Computes a network's outputs for inputs, into an array that it returns."""

LAYER_NORM_EPSILON = 1e-5
"""Added to the variance; as torch has it."""


class Mlp:
    """Linear layers with an activation between them, and a layer norm before it if it is asked for.

    Nothing follows the last layer. The norm has no gain and no bias.
    """

    def __init__(
        self,
        weights: Sequence[Float32],
        biases: Sequence[Float32],
        *,
        activation: Activation = "tanh",
        layer_norm: bool = False,
    ) -> None:
        """Copy the layers: weights [out, in] as torch keeps them, biases [out].

        Raises:
            ValueError: There is no layer, or one is empty or does not fit the one before it.
        """
        if not weights or len(weights) != len(biases):
            raise ValueError(f"{len(weights)} weights and {len(biases)} biases make no network")
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            inputs = weights[i - 1].shape[0] if i else weight.shape[-1]
            fits = weight.ndim == 2 and weight.shape[1] == inputs and weight.size > 0
            if not fits or bias.shape != weight.shape[:1]:
                raise ValueError(
                    f"layer {i} has weight {weight.shape} and bias {bias.shape}, "
                    f"expected (n, {inputs}) and (n,)"
                )
        # Weights [in, out]. Biases as rows: one row of values plus one of biases needs no
        # broadcasting, which would cost NumPy more than the addition itself.
        *self._hidden, self._last = [
            (np.ascontiguousarray(weight.T), bias.reshape(1, -1).copy())
            for weight, bias in zip(weights, biases, strict=True)
        ]
        self._activate = _ACTIVATE[activation]
        self._layer_norm = layer_norm
        self.input_shape: tuple[int, ...] = weights[0].shape[1:]
        self.output_size: int = weights[-1].shape[0]

    def forward_pass(self, num_rows: int) -> Forward:
        """Return a function that computes outputs [B, H] for `num_rows` inputs [B, F] float32.

        It writes them into its second argument, which must be C-contiguous, and returns that.
        """
        hidden = [
            (weight, bias, np.empty((num_rows, bias.size), np.float32))
            for weight, bias in self._hidden
        ]
        last_weight, last_bias = self._last

        activate, layer_norm = self._activate, self._layer_norm

        def forward(inputs: Float32, out: Float32) -> Float32:
            values = inputs
            for weight, bias, buffer in hidden:
                values.dot(weight, buffer)
                np.add(buffer, bias, buffer)
                if layer_norm:
                    _normalise(buffer)
                values = activate(buffer, buffer)
            values.dot(last_weight, out)
            return np.add(out, last_bias, out)

        return forward


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
