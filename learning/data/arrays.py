"""Formulas for tensors and NumPy arrays alike.

On a CPU NumPy takes less time than torch to begin an operation, and holds the interpreter for less;
GPUs and convolutions are torch's. What both understand is written
once: operators, slices, methods such as `sum(1)` and `clip`, and the functions of `namespace`.
"""

from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats: TypeAlias = NDArray[Any]
"""Of one precision; typed loosely, as NumPy's types forget what a product with a number stays."""

Array = TypeVar("Array", Tensor, Floats)
"""One of the two, throughout one formula."""


def namespace(array: Tensor | Floats) -> Any:
    """Return the module whose functions take such arrays: `torch` or `numpy`.

    >>> namespace(torch.zeros(2)).__name__, namespace(np.zeros(2)).__name__
    ('torch', 'numpy')
    """
    return np if isinstance(array, np.ndarray) else torch
