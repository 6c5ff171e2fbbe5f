"""IMPACT's circular buffer: the last N learner batches, each to be used K times at most.

Luo et al., "IMPACT: Importance weighted asynchronous architectures with clipped target networks",
ICLR 2020, section 3.2 and algorithm 1. With N = K = 1 it is IMPALA's queue: every batch once, in
order of arrival.

Trajectories wait until they fill a batch; the batch then waits, *fresh*, until it is drawn for the
first time and enters the buffer. The buffer's N places limit only replays: no fresh batch is lost,
however many there are.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from learning.data.fragments import decoded, encoded, fragments_from, fragments_of
from shared.trajectory.columns import Array, Experience, side_by_side
from shared.trajectory.trajectory import Trajectory

_WAITING = -1
"""Marks, among the saved uses, trajectories that do not fill a batch yet."""


@dataclass(slots=True, kw_only=True, eq=False)
class BufferedBatch:
    """A batch to learn from."""

    fragments: Experience
    uses: int
    """Number of draws; at 1 the batch was fresh when last drawn."""


class ReplayBuffer:
    """Trajectories in, learner batches out."""

    def __init__(self, *, batch_size: int, num_batches: int, max_uses: int) -> None:
        """Start empty.

        Args:
            batch_size: Environment steps that make a batch; the last trajectory may exceed it.
            num_batches: N, batches kept to replay.
            max_uses: K, most draws of one batch.
        """
        self._batch_size = batch_size
        self._num_batches = num_batches
        self._max_uses = max_uses
        self._waiting: list[Experience] = []
        self._batches: list[BufferedBatch] = []  # in the order they were made

    @property
    def has_fresh(self) -> bool:
        """Whether a batch was never drawn."""
        return any(batch.uses == 0 for batch in self._batches)

    @property
    def ready(self) -> bool:
        """Whether there is a batch to draw."""
        return bool(self._batches)

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Add trajectories in this order; they become a batch once they fill it."""
        for trajectory in trajectories:
            self._waiting.append(fragments_of(trajectory))
            if sum(part.num_steps for part in self._waiting) >= self._batch_size:
                self.flush()

    def flush(self) -> None:
        """Make a batch of the waiting trajectories, however few; none without any."""
        if self._waiting:
            self._batches.append(BufferedBatch(fragments=side_by_side(self._waiting), uses=0))
            self._waiting = []

    def draw(self) -> BufferedBatch:
        """Return the least used batch, so fresh ones first; among equally used ones the oldest.

        The K-th draw of a batch is its last. A fresh batch evicts the oldest if the buffer holds N
        others.

        Raises:
            RuntimeError: There is none.
        """
        if not self._batches:
            raise RuntimeError("the replay buffer holds no batch; look at `ready` before drawing")
        batch = min(self._batches, key=lambda candidate: candidate.uses)
        batch.uses += 1
        kept = [candidate for candidate in self._batches if candidate.uses > 0]
        spent = [batch] if batch.uses >= self._max_uses else []
        spent += kept[: max(0, len(kept) - self._num_batches)]
        self._batches = [candidate for candidate in self._batches if candidate not in spent]
        return batch

    def state(self) -> dict[str, Array]:
        """Return a copy of the contents as arrays by name; byte observations are compressed."""
        parts = [(batch.fragments, batch.uses) for batch in self._batches]
        if self._waiting:
            parts.append((side_by_side(self._waiting), _WAITING))
        fragments = [part for part, _ in parts]
        held = _compressed if fragments and fragments[0].observation.dtype == np.uint8 else _plain
        return {"uses": np.array([uses for _, uses in parts], np.int64), **held(fragments)}

    def restored(self, arrays: Mapping[str, Array]) -> Self:
        """Return a buffer of these sizes that continues from what `state` returned.

        Raises:
            ValueError: The arrays are not a valid state.
        """
        rest = dict(arrays)
        uses = _counts("uses", rest)
        parts = _from_compressed(rest) if "encoded" in rest else _from_plain(rest)
        if len(parts) != len(uses) or (uses[:-1] < 0).any():
            raise ValueError(f"replay buffer: {len(parts)} batches and uses {uses} do not match")
        other = copy(self)
        other._batches = [
            BufferedBatch(fragments=part, uses=int(used))
            for part, used in zip(parts, uses, strict=True)
        ]
        waits = len(uses) and uses[-1] == _WAITING
        other._waiting = [other._batches.pop().fragments] if waits else []
        return other


def _plain(parts: Sequence[Experience]) -> dict[str, Array]:
    """Return batches as one, side by side."""
    widths = {"widths": np.array([part.num_envs for part in parts], np.int64)}
    return widths | (side_by_side(parts).arrays if parts else {})


def _from_plain(rest: dict[str, Array]) -> list[Experience]:
    """Return the batches that `_plain` was given.

    Raises:
        ValueError: The arrays do not go together.
    """
    widths = _counts("widths", rest)
    if not rest and not len(widths):
        return []
    # Theirs may be read-only.
    whole = fragments_from({name: np.array(array) for name, array in rest.items()})
    ends = _ends(widths, of=whole.num_envs, what="columns")
    return [
        whole.between(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True)
    ]


def _compressed(parts: Sequence[Experience]) -> dict[str, Array]:
    """Return batches as the bytes they are encoded in, one after the other."""
    encodings = [encoded(part) for part in parts]
    return {
        "sizes": np.array([len(data) for data in encodings], np.int64),
        "encoded": np.frombuffer(b"".join(encodings), np.uint8),
    }


def _from_compressed(rest: dict[str, Array]) -> list[Experience]:
    """Return the batches that `_compressed` was given.

    Raises:
        ValueError: The bytes are damaged.
    """
    sizes, data = _counts("sizes", rest), rest["encoded"].tobytes()
    ends = _ends(sizes, of=len(data), what="bytes")
    return [
        decoded(data[int(end - size) : int(end)]) for end, size in zip(ends, sizes, strict=True)
    ]


def _ends(sizes: NDArray[np.int64], *, of: int, what: str) -> NDArray[np.int64]:
    if (sizes < 1).any() or sizes.sum() != of:
        raise ValueError(f"replay buffer: {of} {what} for parts of {sizes}")
    return np.cumsum(sizes)


def _counts(name: str, arrays: dict[str, Array]) -> NDArray[np.int64]:
    array = arrays.pop(name, None)
    if array is None or array.dtype != np.int64 or array.ndim != 1:
        found = None if array is None else f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"replay buffer: {name} is {found}, expected int64 [n]")
    return array.astype(np.int64)
