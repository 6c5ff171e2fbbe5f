"""Validation of a saved state against the state that an algorithm would save itself."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from learning.algorithms.policy_update import StateArrays, StateScalars


def require_same_form(expected: StateArrays, found: StateArrays) -> None:
    """Do nothing if the arrays have the same names, shapes and types.

    Raises:
        ValueError: They differ; the message lists missing and unknown names.
    """
    missing, unknown = expected.keys() - found.keys(), found.keys() - expected.keys()
    if missing or unknown:
        raise ValueError(
            f"state has the wrong arrays: missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
    for name, own in expected.items():
        array = found[name]
        if array.shape != own.shape or array.dtype != own.dtype:
            raise ValueError(
                f"state array {name!r} is {array.dtype}{list(array.shape)}, "
                f"this network needs {own.dtype}{list(own.shape)}"
            )


def require_scalars(expected: StateScalars, found: StateScalars) -> None:
    """Do nothing if every expected scalar exists with its type.

    Further scalars are ignored: a newer version may have saved them.

    Raises:
        ValueError: A scalar is missing, of another type or not finite.
    """
    missing = expected.keys() - found.keys()
    if missing:
        raise ValueError(f"state has the wrong scalars: missing {sorted(missing)}")
    for name, own in expected.items():
        value = found[name]
        kinds = {float, int} if type(own) is float else {type(own)}
        if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"state scalar {name!r} is {value!r}, expected {type(own).__name__}")


def generator_from(state: NDArray[np.generic]) -> torch.Generator:
    """Return a generator of random numbers that continues from a saved state.

    Raises:
        ValueError: The array is no such state.
    """
    generator = torch.Generator()
    try:
        generator.set_state(torch.from_numpy(np.array(state)))
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"state array 'generator' cannot be used: {error}") from error
    return generator
