"""The first non-finite number in a rollout's arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def first_not_finite(
    arrays: Mapping[str, NDArray[Any]], *, start: int = 0
) -> tuple[int, str] | None:
    """Return the first step at which an array # [steps, ...] is not finite, and the array's name.

    Steps are counted from `start`. Later non-finite values only follow from the first one.
    """
    found = [
        (start + int(np.argwhere(~np.isfinite(array))[0, 0]), name)
        for name, array in arrays.items()
        if not np.isfinite(array).all()
    ]
    return min(found, default=None)
