"""Named arrays: what actors bring, what a learner keeps of it, and what a gradient step reads.

A column's leading axes follow from its name, so that whatever moves columns about (side by side,
some environments of them, checked when they come from elsewhere) is written once for all names.

Legend: `T` steps; `B` environments side by side; `F` truncated episodes; `E` finished episodes;
`n` samples, for what has no axis of time.
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
    """Return the leading axes of a column of experience: of steps, unless it is known better."""
    return _AXES.get(name, _STEPS)


class ColumnsError(ValueError):
    """Arrays that are not the columns that were expected; the message names the first."""


class Columns(Generic[A]):
    """Arrays by name, tensors or NumPy's: `columns.reward` is `columns.arrays["reward"]`."""

    __slots__ = ("arrays", "num_trajectories", "sequence_length")

    def __init__(self, **arrays: A) -> None:
        self.arrays = arrays
        self.num_trajectories = 1
        """Actors that samples are of, or off-policy environments; each has an equal share of them,
        in one piece."""
        self.sequence_length = 1
        """Samples in a row that a recurrent network is to see together."""

    def __getattr__(self, name: str) -> A:
        # Not `self.arrays`: an object that is being unpickled has none, and would ask for ever.
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
        """Return these columns with some of them in place of what they were, or beside them."""
        other = copy(self)
        other.arrays = self.arrays | arrays
        return other

    def mapped(self, function: Callable[[A], B], *names: str) -> "Columns[B]":
        """Return what a function makes of each column, or of those that are named."""
        chosen = names or self.arrays
        return Columns(**{name: function(self.arrays[name]) for name in chosen})

    def of_trajectories(self, number: int) -> Self:
        """Return these samples as those of so many trajectories."""
        other = copy(self)
        other.num_trajectories = number
        return other

    def in_sequences(self, length: int) -> Self:
        """Return these samples as sequences of so many, one after the other."""
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
        """Where the final observations belong: their t and b, # [F] each.

        Raises:
            ValueError: There is not one for each step that was truncated and not terminated.
        """
        t, b = np.nonzero(self.truncated & ~self.terminated)
        if len(t) != len(self.final_observation):
            raise ValueError(
                f"{len(self.final_observation)} final observations for {len(t)} truncated steps"
            )
        return t, b

    def between(self, start: int, stop: int) -> "Experience":
        """Return environments `start` to `stop` of them."""
        _, b = self.final_rows
        inside = (start <= b) & (b < stop)

        def taken(name: str) -> Array:
            array, axes = self.arrays[name], axes_of(name)
            if axes == ("F",):
                return array[inside]
            return array[start:stop] if axes == ("B",) else array[:, start:stop]

        return Experience(**{name: taken(name) for name in self.arrays})


def final_rows(parts: Sequence[Experience]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the parts' final observations belong, part by part: their t and b, # [F] each.

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
    """Return all environments of some parts, in their order.

    Raises:
        ValueError: There are none, or they differ in length.
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
    """Type and trailing axes that an array must have; None allows any."""

    dtype: np.dtype[Any] | None = np.dtype(np.float32)
    item: tuple[int, ...] | None = ()
    """Shape behind the leading axes."""


Schema = Mapping[str, Column]


def checked(
    arrays: Mapping[str, Array],
    schema: Schema,
    *,
    axes: Callable[[str], Axes] = axes_of,
    finite: bool = False,
) -> dict[str, int]:
    """Return the size of each axis of arrays that are what a schema says.

    Args:
        arrays: From elsewhere.
        schema: What is expected.
        axes: Leading axes by name.
        finite: Whether all numbers must be.

    Raises:
        ColumnsError: They are not; or axes of one name differ in size.
    """
    if arrays.keys() != schema.keys():
        raise ColumnsError(f"holds arrays {sorted(arrays)!r:.300}, expected {sorted(schema)}")
    sizes: dict[str, int] = {}
    # An array that sets an axis's length comes before the arrays that are checked against it.
    for name in sorted(schema, key=lambda name: "T+1" in axes(name)):
        _check(name, arrays[name], schema[name], axes(name), sizes)
    if finite:
        _require_finite(arrays)
    return sizes


def _check(name: str, array: Array, column: Column, leading: Axes, sizes: dict[str, int]) -> None:
    """Hold an array against a column and the sizes of axes so far, and add the new ones."""
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
