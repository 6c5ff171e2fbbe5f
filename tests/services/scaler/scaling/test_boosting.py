"""The boosting score by its properties and, on small cases, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.boosting import (
    BoostingScore,
    ConvexityRatio,
    boosting_score,
    convexity_ratio,
    num_actors,
)
from tests.services.scaler.running import curvature

RATIOS = st.floats(0, 1e12)
HISTORY = st.lists(RATIOS, max_size=20)
UNDEFINED = ConvexityRatio(value=None, note="undefined")


def score_of(
    earlier: list[float], current: float | None, *, k: int = 0, window: int = 6, decay: float = 1.0
) -> BoostingScore:
    return boosting_score(
        earlier, ConvexityRatio(value=current, note=""), round_index=k, window=window, decay=decay
    )


@pytest.mark.parametrize(
    ("lambda_max", "lambda_min", "ratio"),
    [
        (3.0, -1.5, 2.0),
        (1.0, -4.0, 0.25),
        (0.0, -1.0, 0.0),
        (-1.0, -2.0, 0.0),
        (1.0, 0.0, None),
        (2.0, 1.0, None),
        (0.0, 0.0, None),
        (1e308, -1e-308, None),
    ],
)
def test_the_ratio_of_every_kind_of_spectrum(
    lambda_max: float, lambda_min: float, ratio: float | None
) -> None:
    assert convexity_ratio(curvature(lambda_max, lambda_min)).value == ratio


def test_without_curvature_the_ratio_is_undefined_and_says_so() -> None:
    assert convexity_ratio(None) == ConvexityRatio(value=None, note="no curvature was measured")


@pytest.mark.parametrize(
    ("lambda_max", "lambda_min"),
    [
        (math.nan, -1.0),
        (1.0, math.nan),
        (math.inf, -1.0),
        (1.0, -math.inf),
        (-math.inf, -1.0),
        (-1.0, -math.inf),
    ],
)
def test_an_eigenvalue_that_is_not_finite_leaves_the_ratio_undefined(
    lambda_max: float, lambda_min: float
) -> None:
    # No message can hold one, so these are made without validation.
    broken = curvature(1.0, -1.0).model_copy(
        update={"lambda_max": lambda_max, "lambda_min": lambda_min}
    )
    assert convexity_ratio(broken) == ConvexityRatio(value=None, note="curvature is not finite")


def test_the_formula_by_hand() -> None:
    # Window of the last 3: 4, 1, 2. S = (4 - 2) / (4 - 1) * 0.96^5.
    got = score_of([9.0, 4.0, 1.0], 2.0, k=5, window=3, decay=0.96)
    assert got.score == pytest.approx(2 / 3 * 0.96**5)
    assert got.ratio == 2.0


def test_the_first_round_is_worth_everything() -> None:
    assert score_of([], 3.0, k=0, decay=0.96).score == 1.0


def test_before_any_ratio_the_score_is_the_decay_alone() -> None:
    got = boosting_score([], UNDEFINED, round_index=2, window=6, decay=0.5)
    assert got == BoostingScore(score=0.25, ratio=None, note="undefined; no ratio yet: score 1")


def test_an_undefined_ratio_uses_the_last_defined_one_again() -> None:
    again = boosting_score([4.0, 1.0, 2.0], UNDEFINED, round_index=3, window=6, decay=0.9)
    assert again.score == pytest.approx(2 / 3 * 0.9**3)
    assert again.ratio == 2.0
    assert "last ratio 2 used again" in again.note


@given(value=RATIOS, count=st.integers(1, 8))
def test_a_flat_window_scores_one(value: float, count: int) -> None:
    assert score_of([value] * count, value).score == 1.0


@given(earlier=HISTORY, current=st.none() | RATIOS, k=st.integers(0, 500))
def test_the_score_lies_between_zero_and_the_decay(
    earlier: list[float], current: float | None, k: int
) -> None:
    score = score_of(earlier, current, k=k, decay=0.96).score
    assert 0.0 <= score <= 0.96**k


@given(earlier=st.lists(RATIOS, min_size=1, max_size=10), a=RATIOS, b=RATIOS)
def test_among_the_same_rounds_a_larger_ratio_never_scores_higher(
    earlier: list[float], a: float, b: float
) -> None:
    low, high = min(a, b), max(a, b)
    # Both inside the window's own range, so that only the position in it changes.
    low, high = (min(max(x, min(earlier)), max(earlier)) for x in (low, high))
    if min(earlier) < max(earlier):
        assert score_of(earlier, low, window=99).score >= score_of(earlier, high, window=99).score


@given(
    ratios=st.lists(st.integers(0, 1000), min_size=2, max_size=8),
    scale=st.sampled_from([0.25, 0.5, 2.0, 8.0]),
    shift=st.integers(0, 1000),
)
def test_the_score_is_the_same_on_any_linear_scale(
    ratios: list[int], scale: float, shift: int
) -> None:
    plain = [float(r) for r in ratios]
    moved = [scale * r + shift for r in plain]
    assert score_of(moved[:-1], moved[-1]).score == pytest.approx(
        score_of(plain[:-1], plain[-1]).score, abs=1e-9
    )


@given(old=HISTORY, window=st.integers(2, 6), recent=st.lists(RATIOS, min_size=6, max_size=6))
def test_ratios_before_the_window_make_no_difference(
    old: list[float], window: int, recent: list[float]
) -> None:
    with_old = score_of(old + recent[:-1], recent[-1], window=window)
    without = score_of(recent[:-1], recent[-1], window=window)
    assert with_old == without


def test_extreme_ratios_do_not_overflow() -> None:
    assert score_of([1.7e308, 0.0], 1.7e308).score == 0.0


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.0, 8), (0.1, 8), (0.5, 32), (0.5078125, 33), (0.99, 63), (1.0, 64)],
)
def test_actors_follow_the_score_within_the_range(score: float, expected: int) -> None:
    assert num_actors(score, minimum=8, maximum=64) == expected


@given(score=st.floats(0, 1), bounds=st.tuples(st.integers(1, 3000), st.integers(1, 3000)))
def test_actors_never_leave_the_range(score: float, bounds: tuple[int, int]) -> None:
    low, high = sorted(bounds)
    assert low <= num_actors(score, minimum=low, maximum=high) <= high
