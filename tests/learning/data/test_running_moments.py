"""Moments kept up batch by batch against NumPy over all data at once."""

import numpy as np
import pytest
from numpy.typing import NDArray

from learning.data.running_moments import RunningMoments

RNG = np.random.default_rng(0)
BATCHES = [
    (RNG.normal(size=(n, 3)) * [1.0, 1e-3, 50.0] + [0.0, 1e4, -7.0] + k).astype(np.float32)
    for k, n in enumerate((5, 1, 200, 64))
]


def moments_of(batches: list[NDArray[np.float32]]) -> RunningMoments:
    moments = RunningMoments.empty(3)
    for batch in batches:
        moments = moments.including(batch)
    return moments


@pytest.mark.parametrize("num_batches", [1, 2, 4])
def test_they_are_those_of_all_rows_at_once(num_batches: int) -> None:
    batches = BATCHES[:num_batches]
    rows = np.concatenate(batches).astype(np.float64)
    moments = moments_of(batches)
    assert moments.count == len(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), rtol=1e-9, atol=1e-12)


def test_how_the_rows_are_cut_into_batches_makes_no_difference_but_rounding() -> None:
    whole, parts = moments_of([np.concatenate(BATCHES)]), moments_of(BATCHES)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-13)
    np.testing.assert_allclose(parts.m2, whole.m2, rtol=1e-9)


def test_no_rows_leave_them_as_they_are_and_nothing_is_changed_in_place() -> None:
    first = moments_of(BATCHES[:1])
    before = first.arrays()
    assert first.including(np.empty((0, 3), np.float32)) is first
    first.including(BATCHES[2])
    for name, array in first.arrays().items():
        np.testing.assert_array_equal(array, before[name])


def test_what_becomes_of_their_arrays_does_not_reach_them() -> None:
    moments = moments_of(BATCHES)
    arrays = moments.arrays()
    restored = RunningMoments.from_arrays(arrays)
    for array in arrays.values():
        array[...] = 7
    for found in (moments, restored):
        for name, array in moments_of(BATCHES).arrays().items():
            np.testing.assert_array_equal(found.arrays()[name], array)


def test_before_the_first_row_the_variance_is_1() -> None:
    np.testing.assert_array_equal(RunningMoments.empty(3).variance, np.ones(3))


def test_they_go_on_from_their_arrays_to_the_bit() -> None:
    halfway = RunningMoments.from_arrays(moments_of(BATCHES[:2]).arrays())
    for batch in BATCHES[2:]:
        halfway = halfway.including(batch)
    for name, array in moments_of(BATCHES).arrays().items():
        assert halfway.arrays()[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "rows", [np.empty((0, 3), np.float32), BATCHES[1], np.full((5, 3), 2.0, np.float32)]
)
def test_no_rows_and_rows_without_spread_have_arrays_to_go_on_from(
    rows: NDArray[np.float32],
) -> None:
    moments = RunningMoments.empty(3).including(rows)
    found = RunningMoments.from_arrays(moments.arrays()).including(BATCHES[2])
    expected = moments.including(BATCHES[2])
    for name, array in expected.arrays().items():
        assert found.arrays()[name].tobytes() == array.tobytes()


def test_they_count_more_rows_than_32_bits_do() -> None:
    many = RunningMoments.from_arrays(
        {"count": np.array(2**31 - 1), "mean": np.zeros(1), "m2": np.full(1, 2.0**31)}
    )
    more = many.including(np.zeros((1, 1), np.float32)).including(np.zeros((2**10, 1), np.float32))
    assert more.count == 2**31 + 2**10
    np.testing.assert_allclose(more.variance, 2.0**31 / (2**31 + 2**10), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", np.array(-1)),
        ("mean", np.array([0.0, np.nan, 0.0])),
        ("m2", np.array([0.0, np.inf, 0.0])),
        ("m2", np.array([0.0, -1.0, 0.0])),
    ],
)
def test_impossible_arrays_are_refused(name: str, value: NDArray[np.generic]) -> None:
    with pytest.raises(ValueError, match="running moments"):
        RunningMoments.from_arrays(moments_of(BATCHES).arrays() | {name: value})
