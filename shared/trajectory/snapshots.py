"""Snapshots as two arrays: the bytes of several, one after the other, and the size of each.

A *snapshot* is where an environment's episode was left. Only `shared.environments.state` knows what
is in one; everybody else passes it on.

Legend: `N` snapshots, `S` bytes of all together.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_SNAPSHOT_BYTES = 2**18
"""Largest state of one environment that is handed on."""


def joined(snapshots: Iterable[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes [S] and the sizes [N] of snapshots."""
    kept = tuple(snapshots)
    sizes = np.array([len(snapshot) for snapshot in kept], np.int64)
    return np.frombuffer(b"".join(kept), np.uint8), sizes


def parted(data: NDArray[np.generic], sizes: NDArray[np.generic]) -> tuple[bytes, ...]:
    """Return the snapshots that `joined` was given.

    Args:
        data: Untrusted bytes, [S].
        sizes: Untrusted sizes, [N].

    Raises:
        ValueError: They do not belong together, or a snapshot is too large.
    """
    if (data.dtype, data.ndim) != (np.uint8, 1) or (sizes.dtype, sizes.ndim) != (np.int64, 1):
        raise ValueError("snapshots are no bytes, or their sizes no whole numbers")
    if ((sizes < 0) | (sizes > MAX_SNAPSHOT_BYTES)).any() or int(sizes.sum()) != data.size:
        raise ValueError("snapshots do not have the sizes that stand beside them")
    ends = np.cumsum(sizes).tolist()
    return tuple(
        data[end - size : end].tobytes() for size, end in zip(sizes.tolist(), ends, strict=True)
    )
