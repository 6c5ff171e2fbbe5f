"""Formulas for tensors and NumPy arrays alike.

On a CPU NumPy takes less time than torch to begin an operation, and holds the interpreter for less;
GPUs and convolutions are torch's. What both understand is written
once: operators, slices, methods such as `sum(1)` and `clip`, and the functions of `namespace`.

Nothing here imports torch, so that a function without it can compute the same formulas.
"""

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats: TypeAlias = NDArray[Any]
"""Of one precision; typed loosely, as NumPy's types forget what a product with a number stays."""

Array = TypeVar("Array", "Tensor", Floats)
"""One of the two, throughout one formula."""


def namespace(array: "Tensor | Floats") -> Any:
    """Return the module whose functions take such arrays: `torch` or `numpy`.

    >>> namespace(np.zeros(2)).__name__
    'numpy'
    """
    # A caller that has a tensor has imported torch.
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]
