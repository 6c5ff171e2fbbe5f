"""What holds for every scaling policy alike."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scaler.scaling.base import ScalingDecision
from services.scaler.scaling.registry import scaling_policy
from shared.scaling_spec import POLICIES, Policy, require_fit
from tests.services.scaler.scaling.seen import RANGES, inputs, policies


@settings(max_examples=80)
@given(data=st.data())
def test_every_policy_keeps_to_the_range_says_why_and_repeats_itself(
    data: st.DataObject,
) -> None:
    actors = data.draw(RANGES)
    scaling = data.draw(policies(actors))
    seen = data.draw(inputs(actors))
    require_fit(scaling, actors)
    decision = scaling_policy(scaling).decide(seen)
    assert actors.min <= decision.num_actors <= actors.max
    assert decision.score is None or 0.0 <= decision.score <= 1.0
    assert f"{decision.num_actors} actors" in decision.reason
    assert scaling_policy(scaling).decide(seen) == decision


@settings(max_examples=20)
@given(data=st.data())
def test_every_policy_looks_back_a_bounded_way(data: st.DataObject) -> None:
    actors = data.draw(RANGES)
    policy = scaling_policy(data.draw(policies(actors)))
    assert 0 <= policy.num_ratios <= 1000
    assert 0 <= policy.num_rounds <= 1000
    assert isinstance(policy.decide(data.draw(inputs(actors))), ScalingDecision)


def test_every_policy_has_a_name_of_its_own() -> None:
    assert len(POLICIES) == len(get_args(Policy)) == 8
