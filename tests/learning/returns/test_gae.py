"""Advantages against a hand-computed table and a naive double loop."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from learning.returns.gae import generalised_advantages, normalised

Array = NDArray[np.float64]


def advantages(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    discount: float,
    gae_lambda: float,
) -> Array:
    result: Array = generalised_advantages(
        torch.from_numpy(reward),
        torch.from_numpy(value),
        torch.from_numpy(next_value),
        torch.from_numpy(terminated),
        torch.from_numpy(truncated),
        discount=discount,
        gae_lambda=gae_lambda,
    ).numpy()
    return result


def naive_advantages(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    discount: float,
    gae_lambda: float,
) -> Array:
    """A_t = sum over l of (discount * lambda)^l delta_{t+l}, until the episode or fragment ends."""
    num_steps, num_envs = reward.shape
    result = np.zeros((num_steps, num_envs))
    for b in range(num_envs):
        for t in range(num_steps):
            weight = 1.0
            for u in range(t, num_steps):
                future = 0.0 if terminated[u, b] else next_value[u, b]
                result[t, b] += weight * (reward[u, b] + discount * future - value[u, b])
                if terminated[u, b] or truncated[u, b]:
                    break
                weight *= discount * gae_lambda
    return result


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        # gamma = lambda = 1/2, r = 1, V = 2, V' = 4: delta = 1 with bootstrap, -1 without.
        ((0, 0, 0), (0, 0, 0), (1.3125, 1.25, 1.0)),
        ((0, 1, 0), (0, 0, 0), (0.75, -1.0, 1.0)),  # no bootstrap, no recursion
        ((0, 0, 0), (0, 1, 0), (1.25, 1.0, 1.0)),  # bootstrap, no recursion
        ((0, 1, 0), (0, 1, 0), (0.75, -1.0, 1.0)),  # both flags: terminal
        ((0, 0, 1), (0, 0, 0), (1.1875, 0.75, -1.0)),
        ((0, 0, 0), (0, 0, 1), (1.3125, 1.25, 1.0)),  # as the fragment's own end
    ],
)
def test_hand_computed_table(
    terminated: tuple[int, ...], truncated: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    ones = np.ones((3, 1))
    flags = [np.array(flag, dtype=bool)[:, None] for flag in (terminated, truncated)]
    result = advantages(ones, 2 * ones, 4 * ones, flags[0], flags[1], 0.5, 0.5)
    np.testing.assert_array_equal(result[:, 0], expected)


@given(
    seed=st.integers(0, 2**32 - 1),
    num_steps=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    end_rate=st.floats(0, 1),
    discount=st.floats(0, 1),
    gae_lambda=st.floats(0, 1),
)
def test_agrees_with_the_naive_double_loop(
    seed: int, num_steps: int, num_envs: int, end_rate: float, discount: float, gae_lambda: float
) -> None:
    rng = np.random.default_rng(seed)
    shape = (num_steps, num_envs)
    reward, value, next_value = rng.normal(size=(3, *shape))
    terminated, truncated = rng.random((2, *shape)) < end_rate
    arguments = (reward, value, next_value, terminated, truncated, discount, gae_lambda)
    np.testing.assert_allclose(
        advantages(*arguments), naive_advantages(*arguments), rtol=1e-9, atol=1e-9
    )


def test_a_terminal_step_ignores_its_next_value_even_when_that_is_not_finite() -> None:
    ones = np.ones((1, 1))
    yes, no = ones.astype(bool), np.zeros((1, 1), bool)
    assert advantages(ones, ones, np.inf * ones, yes, no, 0.9, 0.9) == 0.0


def test_refuses_unequal_shapes() -> None:
    ones = torch.ones(3, 2)
    flag = torch.zeros(3, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"\(3, 2\), \(3,\)"):
        generalised_advantages(ones, ones, torch.ones(3), flag, flag, discount=0.9, gae_lambda=0.9)


def test_normalised_advantages_have_mean_zero_and_deviation_one() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 10.0])
    result = normalised(values).numpy()
    expected = (values.numpy() - 4.0) / np.std(values.numpy())
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_equal_advantages_become_zeros() -> None:
    assert not normalised(torch.full((7,), 3.0)).any()


def test_advantages_that_hardly_differ_are_divided_by_a_ten_thousandth() -> None:
    values = torch.tensor([1e-6, -1e-6, 3e-6, -3e-6])
    np.testing.assert_allclose(normalised(values).numpy(), values.numpy() / 1e-4, rtol=1e-5)
