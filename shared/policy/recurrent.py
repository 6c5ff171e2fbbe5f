"""A recurrent cell: a block that carries a state from step to step of an episode.

`lstm` is Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997, with
forget gates; `gru` is Cho et al., EMNLP 2014, in the form of torch and cuDNN, whose reset gate
follows the product. Weights have torch's layout, with the input's columns before the state's, but
one bias instead of torch's two.

The state is zero when an episode begins. One formula serves NumPy and torch.

Legend: `N` rows; `I` inputs; `U` units; `G` gates times units; `S` numbers of a state: the units'
outputs, and of an LSTM its cells behind them.
"""

from dataclasses import dataclass
from typing import Any, Literal

Cell = Literal["lstm", "gru"]
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3}
CELLS: tuple[Literal["none"] | Cell, ...] = ("none", "lstm", "gru")
"""Values of `recurrent` in a policy's metadata."""
MAX_STATE = 2.0**24
"""Largest number of a state. Outputs are within -1 and 1. A step adds at most 1 to an LSTM's cell,
and float32 has no number between 2^24 and 2^24 + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """Recurrent units; the next block receives their outputs."""

    cell: Cell
    inputs: int
    units: int

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """[G, I + U], with torch's order of gates: i f g o or r z n."""
        return (GATES[self.cell] * self.units, self.inputs + self.units)

    @property
    def state_size(self) -> int:
        """Size of a state, S."""
        return self.units * (2 if self.cell == "lstm" else 1)

    @property
    def keeping(self) -> slice:
        """Slice of the bias for the gates that preserve the state when open."""
        return slice(self.units, 2 * self.units)

    def following(self, xp: Any, given: Any, recalled: Any, state: Any) -> Any:
        """Return the next states # [N, S], as a new array; their first U numbers are the outputs.

        Args:
            xp: `numpy` or `torch`, whose functions take these arrays.
            given: Product of the input and its weight columns, plus the bias # [N, G]
            recalled: Product of the state's outputs and the other weight columns # [N, G]
            state: # [N, S]
        """
        units = self.units
        if self.cell == "lstm":
            gates = given + recalled
            opened = sigmoid(xp, gates[:, : 2 * units])
            new = xp.tanh(gates[:, 2 * units : 3 * units])
            shown = sigmoid(xp, gates[:, 3 * units :])
            cells = opened[:, units:] * state[:, units:] + opened[:, :units] * new
            return xp.concatenate((shown * xp.tanh(cells), cells), 1)
        opened = sigmoid(xp, given[:, : 2 * units] + recalled[:, : 2 * units])
        new = xp.tanh(given[:, 2 * units :] + opened[:, :units] * recalled[:, 2 * units :])
        return new + opened[:, units:] * (state - new)


def sigmoid(xp: Any, values: Any) -> Any:
    """Return 1 / (1 + exp(-values)), in a form that cannot overflow."""
    return 0.5 * xp.tanh(0.5 * values) + 0.5


def sequence_length(num_samples: int, longest: int) -> int:
    """Return the largest length, up to `longest` steps, of equal sequences of all samples.

    >>> sequence_length(2048, 32), sequence_length(2044, 32), sequence_length(7, 32)
    (32, 28, 7)
    """
    return next(n for n in range(min(longest, num_samples), 0, -1) if num_samples % n == 0)
