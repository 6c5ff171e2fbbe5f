"""Steps up and down by recent returns, NumPy's gradient as the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.base import PastRound, ScalingInput
from services.scaler.scaling.reward_window import RewardWindowPolicy, relative_change
from shared.contracts.scaling_spec import RewardWindowScaling
from tests.services.scaler.scaling.seen import seen

POLICY = RewardWindowPolicy(RewardWindowScaling(policy="reward_window", step=8, flat=0.1))
# Rounded: of numbers near the smallest there are, NumPy's mean is 0.
RETURN = st.floats(-1e6, 1e6).map(lambda value: round(value, 6))
RETURNS = st.lists(RETURN, min_size=2, max_size=12)


def after(*returns: float | None, requested: int = 32) -> ScalingInput:
    past = tuple(
        PastRound(round_index=k, requested=requested, num_actors=requested, training_return=value)
        for k, value in enumerate(returns)
    )
    return seen(len(returns), past=past)


@given(returns=RETURNS)
def test_the_change_is_numpys_mean_gradient_over_the_mean_size(returns: list[float]) -> None:
    size = float(np.mean(np.abs(returns)))
    expected = abs(float(np.mean(np.gradient(returns)))) / size if size else 0.0
    assert relative_change(returns) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(returns=RETURNS, scale=st.sampled_from([0.25, 4.0, -2.0, 2.0**-40]))
def test_the_change_has_no_unit(returns: list[float], scale: float) -> None:
    scaled = relative_change([scale * value for value in returns])
    assert scaled == pytest.approx(relative_change(returns), rel=1e-9)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ((100.0, 150.0, 200.0), 40),
        ((200.0, 150.0, 100.0), 40),  # a fall is change as well
        ((100.0, 101.0, 100.0), 24),
        ((0.0, 0.0, 0.0), 24),
        ((100.0, None, 200.0), 40),
        ((100.0, 200.0, 300.0, 300.0, 300.0, 300.0), 24),  # what was before the window is over
        ((None, 100.0), 32),
        ((None, None), 32),
    ],
)
def test_up_while_returns_move_and_down_while_they_stand_still(
    returns: tuple[float | None, ...], expected: int
) -> None:
    assert POLICY.decide(after(*returns)).requested == expected


@pytest.mark.parametrize(("returns", "expected"), [((7.0, 7.0), 24), ((7.0, 7.001), 40)])
def test_returns_that_change_by_no_more_than_the_bound_stand_still(
    returns: tuple[float, ...], expected: int
) -> None:
    policy = RewardWindowPolicy(RewardWindowScaling(policy="reward_window", step=8, flat=0.0))
    assert policy.decide(after(*returns)).requested == expected


def test_it_starts_at_the_top_and_stays_within_the_range() -> None:
    assert POLICY.decide(seen()).requested == 64
    assert POLICY.decide(after(1.0, 9.0, requested=64)).requested == 64
    assert POLICY.decide(after(9.0, 9.0, requested=8)).requested == 8


def test_huge_returns_do_not_overflow() -> None:
    assert relative_change([1.7e308, -1.7e308]) == pytest.approx(2.0)


def test_steps_are_taken_from_what_the_newest_round_asked_for_whatever_it_was_granted() -> None:
    past = (
        PastRound(round_index=0, requested=16, num_actors=16, training_return=100.0),
        PastRound(round_index=1, requested=40, num_actors=24, training_return=200.0),
    )
    assert POLICY.decide(seen(2, past=past)).requested == 48
    assert POLICY.num_rounds == 3
