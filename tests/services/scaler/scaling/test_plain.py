"""Policies that follow the round's number only: fixed, schedule, hydrozoa."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.fixed import FixedPolicy
from services.scaler.scaling.hydrozoa import HydrozoaPolicy
from services.scaler.scaling.schedule import SchedulePolicy
from shared.contracts.scaling_spec import (
    MAX_ACTORS,
    ActorRange,
    FixedScaling,
    HydrozoaScaling,
    ScheduleScaling,
)
from tests.services.scaler.scaling.seen import RANGES, seen

HYDROZOA = HydrozoaPolicy(HydrozoaScaling(policy="hydrozoa"))


@given(k=st.integers(0, 10**6))
def test_fixed_is_fixed(k: int) -> None:
    policy = FixedPolicy(FixedScaling(policy="fixed", num_actors=12))
    assert policy.decide(seen(k)).requested == 12


def test_a_schedule_is_followed_and_its_last_entry_holds_with_a_word_about_it() -> None:
    policy = SchedulePolicy(ScheduleScaling(policy="schedule", num_actors=(8, 64, 16)))
    decisions = [policy.decide(seen(k)) for k in range(5)]
    assert [d.requested for d in decisions] == [8, 64, 16, 16, 16]
    assert ["past the end" in d.reason for d in decisions] == [False, False, False, True, True]


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
