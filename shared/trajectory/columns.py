"""Named arrays: the actors' results, the learner's samples, and the input of a gradient step.

A column's leading axes follow from its name. So code that joins, slices or checks columns is
written once for all names.

Legend: `T` steps; `B` environments side by side; `F` truncated episodes; `E` finished episodes;
`n` samples, for columns without a time axis.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
A = TypeVar("A")
B = TypeVar("B")
Axes = tuple[str, ...]

_STEPS: Axes = ("T", "B")
_AXES: Mapping[str, Axes] = {
    "observation": ("T+1", "B"),
    "final_observation": ("F",),
    "policy_version": ("B",),
    "recurrent_state": ("B",),
    "episode_returns": ("E",),
    "episode_lengths": ("E",),
}


def axes_of(name: str) -> Axes:
    """Return the leading axes of a column of experience; by default those of steps."""
    return _AXES.get(name, _STEPS)


class ColumnsError(ValueError):
    """Arrays that differ from the expected columns; the message names the first."""


class Columns(Generic[A]):
    """Arrays or tensors by name: `columns.reward` is `columns.arrays["reward"]`."""

    __slots__ = ("arrays", "num_trajectories", "sequence_length")

    def __init__(self, **arrays: A) -> None:
        self.arrays = arrays
        self.num_trajectories = 1
        """Number of actors, or off-policy environments, in the samples; each contributes an equal,
        contiguous share."""
        self.sequence_length = 1
        """Number of consecutive samples in a recurrent network's sequence."""

    def __getattr__(self, name: str) -> A:
        # Not `self.arrays`: during unpickling it does not exist yet, and would recurse for ever.
        arrays: dict[str, A] = object.__getattribute__(self, "arrays")
        try:
            return arrays[name]
        except KeyError:
            raise AttributeError(f"no column is named {name!r}: {sorted(arrays)}") from None

    @property
    def num_samples(self) -> int:
        """Size of the first axis, n."""
        first: Any = next(iter(self.arrays.values()))
        return len(first)

    def replaced(self, **arrays: A) -> Self:
        """Return these columns with some arrays replaced or added."""
        other = copy(self)
        other.arrays = self.arrays | arrays
        return other

    def mapped(self, function: Callable[[A], B], *names: str) -> "Columns[B]":
        """Return a function's result for each column, or for the named columns only."""
        chosen = names or self.arrays
        return Columns(**{name: function(self.arrays[name]) for name in chosen})

    def of_trajectories(self, number: int) -> Self:
        """Return these samples as those of `number` trajectories."""
        other = copy(self)
        other.num_trajectories = number
        return other

    def in_sequences(self, length: int) -> Self:
        """Return these samples as consecutive sequences of `length`."""
        other = copy(self)
        other.sequence_length = length
        return other


class Experience(Columns[Array]):
    """Columns of steps, with at least `reward`, `terminated`, `truncated`, `final_observation`."""

    __slots__ = ()

    @property
    def num_steps(self) -> int:
        """Environment steps over all environments, T * B."""
        return int(self.reward.size)

    @property
    def num_envs(self) -> int:
        """Environments side by side, B."""
        return int(self.reward.shape[1])

    @property
    def final_rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The t and b of the final observations, # [F] each.

        Raises:
            ValueError: They do not match the truncated, unterminated steps one to one.
        """
        t, b = np.nonzero(self.truncated & ~self.terminated)
        if len(t) != len(self.final_observation):
            raise ValueError(
                f"{len(self.final_observation)} final observations for {len(t)} truncated steps"
            )
        return t, b

    def between(self, start: int, stop: int) -> "Experience":
        """Return environments `start` to `stop`."""
        _, b = self.final_rows
        inside = (start <= b) & (b < stop)

        def taken(name: str) -> Array:
            array, axes = self.arrays[name], axes_of(name)
            if axes == ("F",):
                return array[inside]
            return array[start:stop] if axes == ("B",) else array[:, start:stop]

        return Experience(**{name: taken(name) for name in self.arrays})


def final_rows(parts: Sequence[Experience]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the t and b of the parts' final observations, part by part, # [F] each.

    b counts over the environments of all parts.
    """
    rows, first_env = [], 0
    for part in parts:
        t, b = part.final_rows
        rows.append((t, b + first_env))
        first_env += part.num_envs
    t, b = np.concatenate(rows, axis=1)
    return t, b


def side_by_side(parts: Sequence[Experience]) -> Experience:
    """Return the environments of all parts, in order.

    Raises:
        ValueError: There are no parts, or they differ in length.
    """
    lengths = {part.reward.shape[0] for part in parts}
    if len(lengths) != 1:
        raise ValueError(f"fragments of a batch must have one length, got {sorted(lengths)}")
    t, b = final_rows(parts)

    def joined(name: str) -> Array:
        axes = axes_of(name)
        whole = np.concatenate([part.arrays[name] for part in parts], axis=len(axes) - 1)
        return whole[np.lexsort((b, t))] if axes == ("F",) else whole

    return Experience(**{name: joined(name) for name in parts[0].arrays})


@dataclass(frozen=True, slots=True)
class Column:
    """Required type and trailing axes of an array; None allows any."""

    dtype: np.dtype[Any] | None = np.dtype(np.float32)
    item: tuple[int, ...] | None = ()
    """Shape after the leading axes."""


Schema = Mapping[str, Column]


def checked(
    arrays: Mapping[str, Array],
    schema: Schema,
    *,
    axes: Callable[[str], Axes] = axes_of,
    finite: bool = False,
) -> dict[str, int]:
    """Check arrays against a schema, and return the size of each axis.

    Args:
        arrays: Untrusted arrays.
        schema: Expected columns.
        axes: Leading axes by name.
        finite: Whether all numbers must be finite.

    Raises:
        ColumnsError: An array does not fit the schema, or axes of one name differ in size.
    """
    if arrays.keys() != schema.keys():
        raise ColumnsError(f"holds arrays {sorted(arrays)!r:.300}, expected {sorted(schema)}")
    sizes: dict[str, int] = {}
    # An array that sets an axis's length is checked before arrays that depend on it.
    for name in sorted(schema, key=lambda name: "T+1" in axes(name)):
        _check(name, arrays[name], schema[name], axes(name), sizes)
    if finite:
        _require_finite(arrays)
    return sizes


def _check(name: str, array: Array, column: Column, leading: Axes, sizes: dict[str, int]) -> None:
    """Check an array against a column and the known sizes of axes, and add new sizes."""
    if column.dtype is not None and array.dtype != column.dtype:
        raise ColumnsError(f"{name} has dtype {array.dtype}, expected {column.dtype}")
    if array.ndim >= len(leading):
        for axis, size in zip(leading, array.shape, strict=False):
            sizes.setdefault(axis, sizes["T"] + 1 if axis == "T+1" else size)
    item = array.shape[len(leading) :] if column.item is None else column.item
    expected = (*(sizes.get(axis, axis) for axis in leading), *item)
    if array.shape != expected:
        raise ColumnsError(f"{name} has shape {array.shape}, expected {expected}")


def _require_finite(arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            continue
        finite = np.isfinite(array)
        if not finite.all():
            raise ColumnsError(f"{name} is not finite at {np.argwhere(~finite)[0].tolist()}")
