"""Moments kept up batch by batch against NumPy over all data at once."""

import numpy as np
import pytest
from numpy.typing import NDArray

from services.learner.running_moments import RunningMoments

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


def test_before_the_first_row_the_variance_is_1() -> None:
    np.testing.assert_array_equal(RunningMoments.empty(3).variance, np.ones(3))


def test_they_go_on_from_their_arrays_to_the_bit() -> None:
    halfway = RunningMoments.from_arrays(moments_of(BATCHES[:2]).arrays())
    for batch in BATCHES[2:]:
        halfway = halfway.including(batch)
    for name, array in moments_of(BATCHES).arrays().items():
        assert halfway.arrays()[name].tobytes() == array.tobytes()


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
