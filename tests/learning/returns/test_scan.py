"""The scan against the loop it stands for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learning.returns.scan import carried_back


def loop(start: NDArray[np.float64], carry: NDArray[np.float64]) -> NDArray[np.float64]:
    result, following = np.empty_like(start), np.zeros(start.shape[1:])
    for t in range(len(start) - 1, -1, -1):
        following = result[t] = start[t] + carry[t] * following
    return result


@settings(max_examples=60)
@given(steps=st.integers(1, 70), columns=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_agrees_with_the_loop_for_tensors_and_arrays(steps: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, carry = rng.normal(size=(steps, columns)), rng.uniform(-1.0, 1.0, size=(steps, columns))
    carry[rng.random(carry.shape) < 0.2] = 0.0
    before = start.copy(), carry.copy()
    expected = loop(start, carry)
    np.testing.assert_allclose(carried_back(start, carry), expected, rtol=1e-12, atol=1e-12)
    found = carried_back(torch.from_numpy(start), torch.from_numpy(carry))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(start, before[0])
    np.testing.assert_array_equal(carry, before[1])


@pytest.mark.parametrize("steps", [1, 2, 1023, 1024, 1025])
def test_a_carry_of_one_sums_and_a_carry_of_zero_does_not(steps: int) -> None:
    start = np.arange(steps, dtype=np.float32)
    ones, zeros = np.ones_like(start), np.zeros_like(start)
    np.testing.assert_array_equal(carried_back(start, ones), start[::-1].cumsum()[::-1])
    np.testing.assert_array_equal(carried_back(start, zeros), start)


def test_single_precision_stays_near_the_exact_result() -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2048, 4))
    carry = np.full(start.shape, 0.99 * 0.95)
    exact = loop(start, carry)
    found = carried_back(start.astype(np.float32), carry.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, atol=2e-5)


def test_growing_carries_do_not_make_nan_of_steps_that_hand_on_nothing() -> None:
    start, carry = np.zeros(1024, np.float32), np.full(1024, 1.9, np.float32)
    start[5] = 1.0
    found = carried_back(start, carry)
    np.testing.assert_allclose(found[:6], 1.9 ** np.arange(5, -1, -1), rtol=1e-6)
    assert not found[6:].any()
