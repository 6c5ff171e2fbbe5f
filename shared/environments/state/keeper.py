"""Saving the state of one environment layer: by functions from a table, or by the layer itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


class StateError(ValueError):
    """A state that cannot be saved, or does not fit the environment that should restore it."""


class NotNowError(StateError):
    """A state that cannot be saved at this moment, but a step later."""


class KeepsState(Protocol):
    """A bare environment, or a wrapper, that saves its own state.

    Each layer saves only its own state; `np_random` is saved once for all layers.
    """

    def get_state(self) -> Arrays:
        """Return everything that the next step or reset depends on.

        Arrays are float32, float64, int32, int64, uint8 or bool; their names are free.

        Raises:
            NotNowError: The state cannot be saved at this moment.
            StateError: The state can never be saved.
        """
        ...

    def set_state(self, state: Arrays) -> None:
        """Restore the result of `get_state` of another environment of this kind.

        This environment may be new and never reset.

        Raises:
            LookupError: An array is missing.
            ValueError: An array does not fit.
        """
        ...


@dataclass(frozen=True, slots=True)
class Keeper:
    """Gets and sets the state of a layer that does not do it itself."""

    get: Callable[[Any], Arrays]
    set: Callable[[Any, Arrays], None]


def _nothing(_layer: object) -> Arrays:
    return {}


def _ignore(_layer: object, _state: Arrays) -> None: ...


STATELESS = Keeper(_nothing, _ignore)


def require_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse an array whose shape does not fit its place.

    Raises:
        ValueError: With both shapes.
    """
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")


def optional(value: object) -> NDArray[Any]:
    """Return a value as an array; None becomes an empty array."""
    return np.zeros(0) if value is None else np.array(value)


def number(name: str, array: NDArray[Any]) -> Any:  # noqa: ANN401 - int, float, bool or None
    """Return the Python number that `optional` took.

    Raises:
        ValueError: The array does not hold one number or None.
    """
    if array.shape == (0,):
        return None
    require_shape(name, array, ())
    return array.item()
