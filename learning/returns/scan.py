"""Linear recurrences along time in a logarithmic number of array operations.

A loop over the steps of a fragment spends its time on launching a thousand tiny operations. The
scan of Hillis and Steele, "Data parallel algorithms", Communications of the ACM 29(12), 1986,
doubles the span of a partial result in every operation: 10 operations for 1,024 steps, on a CPU and
on a GPU.
"""

from torch import Tensor

from learning.arrays import Array, namespace

_REACH_MAX = 1e18
"""Only carries above 1 reach it. Its square is still finite: infinity times 0 would be NaN."""


def carried_back(start: Array, carry: Array) -> Array:
    """Return x_t = start_t + carry_t * x_{t+1}, with 0 behind the last step.

    A single step is returned as it is, not copied.

    Args:
        start: Each step's own term. # [T, ...]
        carry: Factor of the next step's result, usually below 1. # [T, ...]

    >>> import numpy as np
    >>> carried_back(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.0, 0.9]))
    array([2., 2., 4.])
    """
    xp, x, reach, span = namespace(start), start, carry, 1
    while span < len(start):
        # x_t holds the steps t to t + span - 1, and reach_t is the factor of x_{t + span}.
        added = reach[: len(x) - span] * x[span:]
        x = xp.concatenate((x[:-span] + added, x[-span:]))
        reach = (reach[:-span] * reach[span:]).clip(-_REACH_MAX, _REACH_MAX)
        span *= 2
    return x


def require_steps(**tensors: Tensor) -> None:
    """Do nothing if all tensors are [T, B] of one shape.

    Raises:
        ValueError: They are not.
    """
    shapes = [tuple(tensor.shape) for tensor in tensors.values()]
    if len(shapes[0]) != 2 or len(set(shapes)) != 1:
        *others, last = tensors
        raise ValueError(
            f"{', '.join(others)} and {last} must all be [T, B] of one shape, got {shapes}"
        )
