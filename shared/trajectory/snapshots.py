"""Snapshots as two arrays: their concatenated bytes, and the size of each.

A *snapshot* is the point at which an environment's episode was saved. Only
`shared.environments.state` knows its contents; all other code passes it on.

Legend: `N` snapshots, `S` total bytes.
"""

import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_SNAPSHOT_BYTES = 2**18
"""Largest snapshot of one environment."""


def joined(snapshots: Iterable[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes [S] and the sizes [N] of snapshots."""
    kept = tuple(snapshots)
    sizes = np.array([len(snapshot) for snapshot in kept], np.int64)
    return np.frombuffer(b"".join(kept), np.uint8), sizes


def parted(data: NDArray[np.generic], sizes: NDArray[np.generic]) -> tuple[bytes, ...]:
    """Return the snapshots that `joined` took.

    Args:
        data: Untrusted bytes, [S].
        sizes: Untrusted sizes, [N].

    Raises:
        ValueError: The bytes do not match the sizes, or a snapshot is too large.
    """
    if data.dtype != np.uint8 or data.ndim != 1 or sizes.dtype != np.int64 or sizes.ndim != 1:
        raise ValueError("snapshots are no bytes, or their sizes no whole numbers")
    lengths: list[int] = sizes.tolist()
    if not all(0 <= length <= MAX_SNAPSHOT_BYTES for length in lengths):
        raise ValueError(f"a snapshot has a size beyond {MAX_SNAPSHOT_BYTES} bytes, or below 0")
    if sum(lengths) != data.size:
        raise ValueError(f"snapshots of {sum(lengths)} bytes have a size of {data.size}")
    ends = itertools.accumulate(lengths)
    return tuple(
        data[end - length : end].tobytes() for length, end in zip(lengths, ends, strict=True)
    )
