from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.fixed import FixedPolicy
from shared.contracts.scaling_spec import FixedScaling
from tests.services.scaler.scaling.seen import seen


@given(k=st.integers(0, 10**6))
def test_fixed_is_fixed(k: int) -> None:
    policy = FixedPolicy(FixedScaling(policy="fixed", num_actors=12))
    assert policy.decide(seen(k)).requested == 12
