"""Weights of gradients, and their mean."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.aggregation.weighting import Arrived, WeighingRule, weighted_mean
from shared.contracts.learner_functions import Form


def arrived(values: list[float], *, num_samples: int) -> Arrived:
    flat = np.array(values, np.float32)
    stats = np.array(values, np.float64)
    return Arrived(call=0, base=0, flat=flat, stats=stats, num_samples=num_samples)


@given(
    st.sampled_from(["paper", "code", "off"]),
    st.floats(0.5, 10.0),
    st.floats(0.1, 1.0),
    st.lists(st.integers(0, 10_000), min_size=2, max_size=20),
    st.integers(1, 10_000),
)
def test_weights_are_in_zero_to_one_and_never_rise_with_staleness(
    form: Form, v: float, decay: float, ages: list[int], step: int
) -> None:
    rule = WeighingRule(form=form, v=v, decay=decay)
    weights = [rule.weight(age, step=step) for age in sorted(ages)]
    assert all(0.0 < weight <= 1.0 for weight in weights)
    assert weights == sorted(weights, reverse=True)


def test_the_papers_weights() -> None:
    rule = WeighingRule(form="paper", v=3.0, decay=0.9)
    assert [rule.weight(age, step=1) for age in (0, 1)] == [1.0, 1.0]
    assert rule.weight(8, step=1) == pytest.approx(0.5)


def test_the_codes_weights_are_all_one_by_default() -> None:
    rule = WeighingRule(form="code", v=3.0, decay=0.9)
    assert {rule.weight(5, step=step) for step in range(1, 500)} == {1.0}
    assert WeighingRule(form="code", v=3.0, decay=0.1).weight(0, step=8) == pytest.approx(0.5)


def test_the_mean_goes_by_samples_and_weights() -> None:
    gradients = [arrived([1.0, 2.0], num_samples=1), arrived([3.0, 4.0], num_samples=3)]
    flat, stats = weighted_mean(gradients, [1.0, 0.5])
    np.testing.assert_allclose(flat, [0.25 + 1.125, 0.5 + 1.5])
    np.testing.assert_allclose(stats, [2.5, 3.5])


def test_one_gradient_of_weight_one_is_returned_to_the_bit() -> None:
    values = np.random.default_rng(0).normal(size=50).tolist()
    gradient = arrived(values, num_samples=7)
    flat, stats = weighted_mean([gradient], [1.0])
    assert flat.tobytes() == gradient.flat.tobytes()
    assert stats.tobytes() == gradient.stats.tobytes()
