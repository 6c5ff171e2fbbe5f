"""Formulas for tensors and NumPy arrays alike.

On a CPU NumPy starts an operation faster than torch, and holds the interpreter's lock for less
time. GPUs and convolutions need torch. A formula for both is written once, with operators, slices,
methods such as `sum(1)` and `clip`, and the functions of `namespace`.

This module does not import torch, so a function without torch can compute the same formulas.
"""

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats: TypeAlias = NDArray[Any]
"""Arrays of one precision; typed loosely, as NumPy's types lose it in products with a number."""

Array = TypeVar("Array", "Tensor", Floats)
"""One of the two types, the same throughout a formula."""


def namespace(array: "Tensor | Floats") -> Any:
    """Return the module whose functions take such arrays: `torch` or `numpy`.

    >>> namespace(np.zeros(2)).__name__
    'numpy'
    """
    # A caller that has a tensor has imported torch.
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]
