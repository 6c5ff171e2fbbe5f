"""The published code's score against its own steps, written down naively."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.boosting import ConvexityRatio
from services.scaler.scaling.published_score import published_num_actors, published_score
from shared.contracts.scaling_spec import ActorRange

PAPER_RANGE = ActorRange(min=8, max=64)


def naive(loss_ratios: list[float], decay: float, window: int) -> list[tuple[float, int]]:
    """Score and actors round by round, as the published loop goes (its window, its floor)."""
    slots: list[float] = []
    out = []
    for k, ratio in enumerate(loss_ratios):
        decayed = ratio * decay**k
        slots.append(decayed)
        seen = slots[-window:]
        low, high = min(seen), max(seen)
        score = 1.0 if len(seen) == 1 or high == low else (decayed - low) / (high - low)
        floor = int(np.clip(64 * (decay**k) ** k, 8, 64))
        out.append((score, int(np.clip(64 * score, floor, 64))))
        slots.append(ratio)
    return out


@given(
    ratios=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=15),
    window=st.integers(2, 8),
    decay=st.sampled_from([0.9, 0.96, 1.0]),
)
def test_it_is_the_published_loop(ratios: list[float], window: int, decay: float) -> None:
    # Ours are ratios of the objective: the loss's inverted.
    expected = naive([1.0 / (1.0 / r) for r in ratios], decay, window)
    objective = [1.0 / r for r in ratios]
    for k, (score, actors) in enumerate(expected):
        got = published_score(
            objective[:k],
            ConvexityRatio(value=objective[k], note=""),
            round_index=k,
            window=window,
            decay=decay,
        )
        assert got.score == pytest.approx(score, abs=1e-6)
        floor = math.floor(64 * (decay**k) ** k)
        if 64 * score % 1 > 1e-6 and abs(64 * score - floor) > 1e-6:  # where cutting off is stable
            count = published_num_actors(got.score, round_index=k, decay=decay, actors=PAPER_RANGE)
            assert count == actors


@pytest.mark.parametrize("value", [None, 0.0])
def test_without_a_ratio_that_can_be_inverted_the_score_is_one(value: float | None) -> None:
    got = published_score(
        [0.0], ConvexityRatio(value=value, note=""), round_index=3, window=6, decay=0.96
    )
    assert got.score == 1.0
    assert "no ratio yet" in got.note


def test_the_floor_is_all_actors_at_first_and_the_fewest_soon() -> None:
    counts = [
        published_num_actors(0.0, round_index=k, decay=0.96, actors=PAPER_RANGE)
        for k in (0, 2, 4, 6, 8, 10, 10**6)
    ]
    assert counts == [64, 54, 33, 14, 8, 8, 8]
