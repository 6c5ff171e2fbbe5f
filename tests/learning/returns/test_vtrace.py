"""V-trace against the paper's double sum, n-step returns and generalised advantages."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learning.returns.gae import generalised_advantages
from learning.returns.vtrace import Returns, vtrace

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Fragments with random ends; `next_value` is the following row's but where one is cut."""

    log_ratio: Array
    reward: Array
    value: Array
    next_value: Array
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    def run(self, **options: float) -> Returns:
        return vtrace(
            torch.from_numpy(self.log_ratio),
            torch.from_numpy(self.reward),
            torch.from_numpy(self.value),
            torch.from_numpy(self.next_value),
            torch.from_numpy(self.terminated),
            torch.from_numpy(self.truncated),
            **options,
        )


def make_case(seed: int, *, on_policy: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 12)), int(rng.integers(1, 4)))
    terminated = rng.random(shape) < 0.2
    truncated = rng.random(shape) < 0.2
    value = rng.normal(size=shape)
    next_value = np.concatenate((value[1:], rng.normal(size=(1, shape[1]))))
    cut = truncated & ~terminated
    next_value[cut] = rng.normal(size=int(cut.sum()))
    next_value[terminated] = rng.normal(size=int(terminated.sum())) * 100.0  # must not matter
    log_ratio = np.zeros(shape) if on_policy else rng.normal(size=shape)
    return Case(log_ratio, rng.normal(size=shape), value, next_value, terminated, truncated)


def double_sum(case: Case, *, discount: float, lam: float, rho_clip: float, c_clip: float) -> Array:
    """Equation 1: v_s = V_s + sum_t gamma^(t-s) (prod_{i<t} c_i) rho_t (r_t + gamma V' - V_t)."""
    num_steps, num_envs = case.reward.shape
    ratio = np.exp(case.log_ratio)
    target = case.value.copy()
    for b in range(num_envs):
        for s in range(num_steps):
            for t in range(s, num_steps):
                traces = np.prod(lam * np.minimum(c_clip, ratio[s:t, b]))
                future = 0.0 if case.terminated[t, b] else case.next_value[t, b]
                error = case.reward[t, b] + discount * future - case.value[t, b]
                rho = min(rho_clip, ratio[t, b])
                target[s, b] += discount ** (t - s) * traces * rho * error
                if case.terminated[t, b] or case.truncated[t, b]:
                    break
    return target


@given(
    seed=st.integers(0, 2**32 - 1),
    discount=st.floats(0, 1),
    lam=st.floats(0, 1),
    rho_clip=st.floats(0.5, 3),
    c_clip=st.floats(0.1, 2),
)
@settings(max_examples=60)
def test_targets_are_the_double_sum_of_the_definition(
    seed: int, discount: float, lam: float, rho_clip: float, c_clip: float
) -> None:
    case = make_case(seed)
    result = case.run(discount=discount, trace_lambda=lam, rho_clip=rho_clip, c_clip=c_clip)
    expected = double_sum(case, discount=discount, lam=lam, rho_clip=rho_clip, c_clip=c_clip)
    np.testing.assert_allclose(result.target.numpy(), expected, rtol=1e-9, atol=1e-9)
    assert result.rho is not None
    np.testing.assert_allclose(
        result.rho.numpy(), np.minimum(rho_clip, np.exp(case.log_ratio)), rtol=1e-12
    )


@given(seed=st.integers(0, 2**32 - 1), discount=st.floats(0, 1))
@settings(max_examples=40)
def test_the_paper_s_advantage_looks_one_step_ahead_to_the_next_target(
    seed: int, discount: float
) -> None:
    case = make_case(seed)
    result = case.run(discount=discount)
    v = result.target.numpy()
    for (t, b), advantage in np.ndenumerate(result.advantage.numpy()):
        if case.terminated[t, b]:
            future = 0.0
        elif case.truncated[t, b] or t + 1 == len(v):
            future = float(case.next_value[t, b])
        else:
            future = float(v[t + 1, b])
        expected = case.reward[t, b] + discount * future - case.value[t, b]
        assert advantage == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1), discount=st.floats(0, 1))
@settings(max_examples=40)
def test_on_its_own_data_v_trace_is_the_discounted_return_to_the_end(
    seed: int, discount: float
) -> None:
    case = make_case(seed, on_policy=True)
    v = case.run(discount=discount).target.numpy()
    num_steps, num_envs = v.shape
    for b in range(num_envs):
        for s in range(num_steps):
            total, weight = 0.0, 1.0
            for t in range(s, num_steps):
                total += weight * case.reward[t, b]
                weight *= discount
                if case.terminated[t, b]:
                    break
                if case.truncated[t, b] or t + 1 == num_steps:
                    total += weight * case.next_value[t, b]
                    break
            assert v[s, b] == pytest.approx(total, rel=1e-9, abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1), discount=st.floats(0, 1), lam=st.floats(0, 1))
@settings(max_examples=40)
def test_on_its_own_data_the_advantage_is_the_generalised_one(
    seed: int, discount: float, lam: float
) -> None:
    case = make_case(seed, on_policy=True)
    expected = generalised_advantages(
        torch.from_numpy(case.reward),
        torch.from_numpy(case.value),
        torch.from_numpy(case.next_value),
        torch.from_numpy(case.terminated),
        torch.from_numpy(case.truncated),
        discount=discount,
        gae_lambda=lam,
    )
    result = case.run(discount=discount, trace_lambda=lam)
    torch.testing.assert_close(result.advantage, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.target, expected + torch.from_numpy(case.value))


def test_a_hand_computed_table() -> None:
    # Two steps, ratios 2 (clipped to 1) and 0.5, nothing ends.
    case = Case(
        log_ratio=np.log([[2.0], [0.5]]),
        reward=np.array([[1.0], [2.0]]),
        value=np.array([[3.0], [5.0]]),
        next_value=np.array([[5.0], [7.0]]),
        terminated=np.zeros((2, 1), np.bool_),
        truncated=np.zeros((2, 1), np.bool_),
    )
    result = case.run(discount=0.5)
    # v_1 = 5 + 0.5 (2 + 3.5 - 5) = 5.25; v_0 = 3 + (1 + 2.5 - 3) + 0.5 (5.25 - 5) = 3.625.
    np.testing.assert_allclose(result.target.numpy(), [[3.625], [5.25]])
    np.testing.assert_allclose(result.advantage.numpy(), [[1 + 2.625 - 3], [2 + 3.5 - 5]])
    assert result.rho is not None
    np.testing.assert_allclose(result.rho.numpy(), [[1.0], [0.5]])


def test_a_ratio_beyond_floating_point_stays_finite() -> None:
    case = make_case(3)
    far = Case(**{**vars(case), "log_ratio": np.full(case.reward.shape, 1e4)})
    assert torch.isfinite(far.run(discount=0.99).target).all()


def test_shapes_that_differ_are_refused() -> None:
    case = make_case(4)
    with pytest.raises(ValueError, match=r"must all be \[T, B\] of one shape"):
        Case(**{**vars(case), "reward": case.reward[:, 0]}).run(discount=0.9)
