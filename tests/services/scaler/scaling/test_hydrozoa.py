import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.hydrozoa import HydrozoaPolicy
from shared.contracts.scaling_spec import MAX_ACTORS, ActorRange, HydrozoaScaling
from tests.services.scaler.scaling.seen import RANGES, seen

HYDROZOA = HydrozoaPolicy(HydrozoaScaling(policy="hydrozoa"))


@pytest.mark.parametrize(
    ("k", "expected"),
    [(0, 8), (9, 8), (10, 16), (19, 16), (20, 32), (30, 64), (40, 64), (10**9, 64)],
)
def test_hydrozoa_is_the_published_schedule(k: int, expected: int) -> None:
    assert HYDROZOA.decide(seen(k)).requested == expected


def test_hydrozoa_reaches_the_most_of_the_widest_range_and_says_how() -> None:
    widest = ActorRange(min=1, max=MAX_ACTORS)
    decisions = [HYDROZOA.decide(seen(k, actors=widest)) for k in (110, 120, 10**9)]
    assert [d.requested for d in decisions] == [2048, MAX_ACTORS, MAX_ACTORS]
    assert decisions[0].reason == "hydrozoa: 11 doublings of 1: 2048 actors"


@given(actors=RANGES, every=st.integers(1, 30), k=st.integers(0, 1000))
def test_hydrozoa_is_the_formula(actors: ActorRange, every: int, k: int) -> None:
    policy = HydrozoaPolicy(HydrozoaScaling(policy="hydrozoa", every_rounds=every))
    got = policy.decide(seen(k, actors=actors)).requested
    assert got == min(actors.min * 2 ** (k // every), actors.max)
