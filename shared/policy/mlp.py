"""A multi-layer perceptron in NumPy, forward only, without an allocation per call.

Legend: `B` rows, `F` inputs, `H` outputs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Forward = Callable[[NDArray[Any], Float32], Float32]
"""Computes a network's outputs for inputs, into an array that it returns."""

Activation = Literal["tanh", "relu"]


class Mlp:
    """Linear layers with tanh or ReLU between them and nothing after the last."""

    def __init__(
        self,
        weights: Sequence[Float32],
        biases: Sequence[Float32],
        *,
        activation: Activation = "tanh",
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
        self._relu = activation == "relu"
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

        def forward(inputs: Float32, out: Float32) -> Float32:
            values = inputs
            for weight, bias, buffer in hidden:
                values.dot(weight, buffer)
                np.add(buffer, bias, buffer)
                values = np.tanh(buffer, buffer)
            values.dot(last_weight, out)
            return np.add(out, last_bias, out)

        def forward_relu(inputs: Float32, out: Float32) -> Float32:
            values = inputs
            for weight, bias, buffer in hidden:
                values.dot(weight, buffer)
                np.add(buffer, bias, buffer)
                values = np.maximum(buffer, 0.0, out=buffer)
            values.dot(last_weight, out)
            return np.add(out, last_bias, out)

        return forward_relu if self._relu else forward
