"""What holds for every scaling policy alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.boosting import ConvexityRatio
from services.scaler.scaling.registry import SCALING_POLICIES, scaling_policy
from shared.contracts.scaling_spec import (
    POLICIES,
    FixedScaling,
    HydrozoaScaling,
    KungFuScaling,
    MarginalScaling,
    MinionsScaling,
    NitroScaling,
    Policy,
    RandomScaling,
    RewardWindowScaling,
    ScheduleScaling,
)
from tests.services.scaler.scaling.seen import RANGES, biased_agent, inputs, policies, seen


@given(data=st.data())
def test_every_policy_keeps_to_the_range_and_to_what_it_said_says_why_and_repeats_itself(
    data: st.DataObject,
) -> None:
    actors = data.draw(RANGES)
    scaling = data.draw(policies(actors))
    shown = data.draw(inputs(actors))
    scaling.require_fit(actors, shares_samples=scaling.policy == "auto", on_policy=True)
    policy = scaling_policy(scaling)
    decision = policy.decide(shown)
    assert actors.min <= decision.requested <= actors.max
    assert decision.score is None or 0.0 <= decision.score <= 1.0
    assert f"{decision.requested} actors" in decision.reason
    assert scaling_policy(scaling).decide(shown) == decision
    said = data.draw(st.integers(0, shown.round_index))
    assert decision.requested <= policy.most_from(said, actors) <= actors.max
    assert policy.most_from(shown.round_index, actors) <= policy.most_from(said, actors)
    assert 0 <= policy.num_ratios <= 1000
    assert 0 <= policy.num_rounds <= 1000


@pytest.mark.parametrize(
    ("scaling", "most"),
    [
        (NitroScaling(decay=0.5), [64, 32, 16, 8, 8]),
        (NitroScaling(decay=0.5, convention="artifact"), [64] * 5),
        (FixedScaling(policy="fixed", num_actors=16), [16] * 5),
        (RandomScaling(policy="random", decay=0.5), [64, 32, 16, 8, 8]),
        (RandomScaling(policy="random", mean_actors=20.5), [33] * 5),
        (RandomScaling(policy="random", mean_actors=20.3), [33] * 5),
        (RandomScaling(policy="random", mean_actors=60), [64] * 5),
        (KungFuScaling(policy="kungfu"), [64] * 5),
        (MarginalScaling(policy="marginal"), [64] * 5),
        (HydrozoaScaling(policy="hydrozoa"), [64] * 5),
        (MinionsScaling(policy="minionsrl", agent=biased_agent(*(0.0,) * 12)), [12] * 5),
        (MinionsScaling(policy="minionsrl", agent=biased_agent(*(0.0,) * 99)), [64] * 5),
        (RewardWindowScaling(policy="reward_window"), [64] * 5),
        (ScheduleScaling(policy="schedule", num_actors=(9, 30, 8, 20)), [30, 30, 20, 20, 20]),
    ],
)
def test_the_most_that_can_still_be_asked_for(scaling: Policy, most: list[int]) -> None:
    policy = scaling_policy(scaling)
    assert [policy.most_from(k, seen().actors) for k in range(5)] == most


def test_every_policy_has_a_name_and_a_class_that_decides() -> None:
    assert POLICIES.keys() == SCALING_POLICIES.keys()
    assert len(POLICIES) == 10


@pytest.mark.parametrize(
    ("scaling", "scores"),
    [
        (NitroScaling(), True),
        (RandomScaling(policy="random"), True),
        (RandomScaling(policy="random", mean_actors=20.0), False),
        (FixedScaling(policy="fixed", num_actors=12), False),
        (ScheduleScaling(policy="schedule", num_actors=(8, 16)), False),
        (HydrozoaScaling(policy="hydrozoa"), False),
        (KungFuScaling(policy="kungfu"), False),
        (MarginalScaling(policy="marginal"), False),
        (RewardWindowScaling(policy="reward_window"), False),
        (MinionsScaling(policy="minionsrl", agent=biased_agent(0.0, 1.0)), False),
    ],
)
def test_only_policies_that_score_have_a_score(scaling: Policy, scores: bool) -> None:
    decision = scaling_policy(scaling).decide(seen(3, ratio=ConvexityRatio(value=2.5, note="")))
    assert (decision.score is not None) == scores
