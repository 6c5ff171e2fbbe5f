"""A tanh multi-layer perceptron in NumPy, forward only, without an allocation per call.

Legend: `B` rows, `F` inputs, `H` outputs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


class Mlp:
    """Linear layers with tanh between them and nothing after the last."""

    def __init__(self, weights: Sequence[Float32], biases: Sequence[Float32]) -> None:
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
        self.input_shape: tuple[int, ...] = weights[0].shape[1:]
        self.output_size: int = weights[-1].shape[0]

    def buffers(self, num_rows: int) -> list[Float32]:
        """Return scratch for the hidden layers of `forward` calls with this many rows."""
        return [np.empty((num_rows, bias.size), np.float32) for _, bias in self._hidden]

    def forward(self, inputs: Float32, *, out: Float32, buffers: Sequence[Float32]) -> Float32:
        """Compute the network's outputs.

        Args:
            inputs: [B, F] float32.
            out: [B, H] float32, C-contiguous, overwritten and returned.
            buffers: What `buffers(B)` returned; overwritten.
        """
        values = inputs
        for (weight, bias), buffer in zip(self._hidden, buffers, strict=True):
            values.dot(weight, buffer)
            np.add(buffer, bias, buffer)
            values = np.tanh(buffer, buffer)
        weight, bias = self._last
        values.dot(weight, out)
        return np.add(out, bias, out)
