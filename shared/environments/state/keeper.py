"""How one layer of an environment is kept: by functions of a table, or by the layer itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


class StateError(ValueError):
    """A state that cannot be kept, or does not fit the environment it is given to."""


class NotNowError(StateError):
    """A state that cannot be kept at this moment; a step later it can be."""


class KeepsState(Protocol):
    """A bare environment, or a wrapper, that keeps its state itself.

    Each layer keeps its own state only; `np_random` is kept for all of them.
    """

    def get_state(self) -> Arrays:
        """Return what the next step or reset depends on.

        The arrays are of float32, float64, int32, int64, uint8 or bool, and the names are free.

        Raises:
            NotNowError: It cannot be kept at this moment.
            StateError: It can never be.
        """
        ...

    def set_state(self, state: Arrays) -> None:
        """Take over what `get_state` of another environment of this kind returned.

        This one may have been built just now and never reset.

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
    """Refuse an array of another shape than its place has.

    Raises:
        ValueError: With both shapes.
    """
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")


def optional(value: object) -> NDArray[Any]:
    """Return a value as an array; None as an empty one."""
    return np.zeros(0) if value is None else np.array(value)


def number(name: str, array: NDArray[Any]) -> Any:  # noqa: ANN401 - int, float, bool or None
    """Return the Python number that `optional` was given.

    Raises:
        ValueError: It was given something else.
    """
    if array.shape == (0,):
        return None
    require_shape(name, array, ())
    return array.item()
