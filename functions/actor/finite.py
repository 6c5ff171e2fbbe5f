"""Non-finite numbers in a rollout: the first, and those that are the policy's."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from functions.actor.errors import DIVERGED, RolloutError
from shared.policy.distributions import Action


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


def all_finite(array: NDArray[Any]) -> bool:
    """Return whether every number is finite.

    Zero times infinity or NaN is NaN, so a product with zeros tells. For the few numbers of one
    step that takes less than half the time of `np.isfinite(array).all()`. NumPy warns of infinities
    unless the caller's `np.errstate` ignores them.
    """
    flat = array.reshape(-1)
    return math.isfinite(flat.dot(_zeros(flat.size)))


@cache
def _zeros(size: int) -> NDArray[np.float32]:
    return np.zeros(size, np.float32)


def check_diverged(env_id: str, observation: NDArray[Any], action: Action, *, step: int) -> None:
    """Refuse non-finite actions [B, *act] for finite observations [B, *obs]."""
    if all_finite(action):
        return
    seen, taken = (
        np.isfinite(rows).reshape(len(rows), -1).all(axis=1) for rows in (observation, action)
    )
    if (seen & ~taken).any():
        raise RolloutError(f"{env_id}: {DIVERGED.format(step=step + 1)}; rollout dropped")
