"""The outcome of one policy update, and the types an algorithm's state is saved in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

StateArrays = dict[str, NDArray[np.generic]]
"""Weights, optimiser moments, random states by name: what a checkpoint stores as arrays."""
StateScalars = dict[str, bool | int | float | str]
"""The rest of the state by name: what a checkpoint stores as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyUpdate:
    """What one update did."""

    stats: dict[str, float]
    """Finite scalars by name: losses, KL, entropy, clip fractions."""
