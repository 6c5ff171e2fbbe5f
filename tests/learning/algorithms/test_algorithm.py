"""A round learned from as a whole, off-policy: whatever the order, all is used."""

from itertools import permutations

import pytest

from learning.algorithms.algorithm import learn_round
from tests.learning.algorithms.off_policy_rounds import (
    IMPACT,
    IMPACT_STANDARD,
    IMPALA,
    OffPolicyHyperparameters,
    assert_same_state,
    learner,
    round_of,
)
from tests.learning.trajectories import CONTINUOUS


@pytest.mark.parametrize("hyperparameters", [IMPACT, IMPACT_STANDARD, IMPALA])
def test_arrival_order_does_not_change_a_bit(hyperparameters: OffPolicyHyperparameters) -> None:
    expected = learner(CONTINUOUS, hyperparameters)
    trajectories = round_of(expected, CONTINUOUS, 0)
    learn_round(expected, trajectories)
    for order in permutations(range(3)):
        made = learner(CONTINUOUS, hyperparameters)
        learn_round(made, [trajectories[i] for i in order])
        assert_same_state(made, expected)


@pytest.mark.parametrize(
    ("hyperparameters", "updates", "replays"), [(IMPACT, 6.0, 4.0), (IMPALA, 2.0, 0.0)]
)
def test_a_round_is_used_up_and_its_rest_makes_a_small_batch(
    hyperparameters: OffPolicyHyperparameters, updates: float, replays: float
) -> None:
    made = learner(CONTINUOUS, hyperparameters)
    for k in range(2):
        stats = learn_round(made, round_of(made, CONTINUOUS, k)).stats
        assert (stats["updates"], stats["replays"]) == (updates, replays)
        assert (stats["policy_lag_mean"], stats["policy_lag_max"]) == (0.0, 0.0)
        assert not made.ready


def test_an_empty_round_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one trajectory"):
        learn_round(learner(CONTINUOUS, IMPALA), [])
