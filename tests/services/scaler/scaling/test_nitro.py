"""The paper's policy from ratios to counts: the formula, its properties, every degenerate case."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.base import ScalingDecision
from services.scaler.scaling.boosting import ConvexityRatio
from services.scaler.scaling.nitro import NitroPolicy
from shared.contracts.scaling_spec import ActorRange, NitroScaling
from tests.services.scaler.scaling.seen import PAPER_RANGE, UNDEFINED, seen


def decide(
    ratios: list[float],
    *,
    k: int = 0,
    window: int = 6,
    decay: float = 1.0,
    actors: ActorRange = PAPER_RANGE,
) -> ScalingDecision:
    policy = NitroPolicy(NitroScaling(window=window, decay=decay))
    current = ConvexityRatio(value=ratios[-1], note="")
    return policy.decide(seen(k, ratios=tuple(ratios[:-1]), ratio=current, actors=actors))


@given(
    ratios=st.lists(st.integers(0, 1000), min_size=2, max_size=12),
    window=st.integers(2, 8),
    k=st.integers(0, 60),
    hundredths=st.integers(50, 100),
)
def test_the_count_is_the_formula_in_exact_arithmetic(
    ratios: list[int], window: int, k: int, hundredths: int
) -> None:
    last = ratios[-window:]
    position = (
        Fraction(max(last) - last[-1], max(last) - min(last))
        if max(last) > min(last)
        else Fraction(1)
    )
    scaled = 64 * position * Fraction(hundredths, 100) ** k
    got = decide([float(r) for r in ratios], k=k, window=window, decay=hundredths / 100)
    if abs(scaled % 1 - Fraction(1, 2)) > Fraction(1, 10**9):  # where rounding is not a tie
        assert got.requested == min(64, max(8, round(scaled)))


@pytest.mark.parametrize(
    ("earlier", "ratio", "actors", "says"),
    [
        ((), UNDEFINED, 64, "no ratio yet: score 1"),
        ((), ConvexityRatio(value=3.0, note=""), 64, "first ratio 3: score 1"),
        ((2.0, 2.0), ConvexityRatio(value=2.0, note=""), 64, "all 3 ratios are 2: score 1"),
        ((1.0, 5.0, 2.0), UNDEFINED, 48, "last ratio 2 used again"),
        ((1.0, 5.0), ConvexityRatio(value=0.0, note="ratio 0"), 64, "ratio 0"),
        ((1.0, 5.0), ConvexityRatio(value=5.0, note=""), 8, "ratio 5 in [1, 5] of 3 rounds"),
    ],
)
def test_every_degenerate_case_has_its_outcome(
    earlier: tuple[float, ...], ratio: ConvexityRatio, actors: int, says: str
) -> None:
    decision = NitroPolicy(NitroScaling(decay=1.0)).decide(seen(5, ratios=earlier, ratio=ratio))
    assert decision.requested == actors
    assert says in decision.reason


def test_the_published_convention_is_another_score_from_the_same_ratios() -> None:
    policy = NitroPolicy(NitroScaling(convention="artifact"))
    ratio = ConvexityRatio(value=2.0, note="")
    decision = policy.decide(seen(2, ratios=(4.0, 1.0), ratio=ratio))
    # Loss ratios 1/4, 1, 1/2; slots 1/2 * d^2, then 1, d, 1/4, 1/4 behind them.
    newest = 0.5 * 0.96**2
    assert decision.score == pytest.approx((newest - 0.25) / (1.0 - 0.25))
    assert decision.requested == int(64 * 0.96**4), "the floor of the published code"
    assert decision.reason.startswith("published score")
