import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.trajectory.snapshots import MAX_SNAPSHOT_BYTES, joined, parted


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_snapshots_come_apart_as_they_were_joined(snapshots: list[bytes]) -> None:
    assert parted(*joined(snapshots)) == tuple(snapshots)


@pytest.mark.parametrize(
    "sizes",
    [
        np.array([3]),
        np.array([5]),
        np.array([5, -1]),
        np.array([4], np.int32),
        np.array([[4]]),
        np.array([0, MAX_SNAPSHOT_BYTES + 1, 0]),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: np.ndarray[tuple[int, ...], np.dtype]) -> None:
    with pytest.raises(ValueError, match="size"):
        parted(np.zeros(4, np.uint8), sizes)
