"""The learned policy: what it is shown, and that it draws what its agent says."""

import math
from collections import Counter

import pytest
from scipy.stats import chisquare

from services.scaler.scaling.base import PastRound
from services.scaler.scaling.minionsrl import MinionsPolicy, scheduler_state
from shared.contracts.minions_agent import choice_probabilities
from shared.contracts.scaling_spec import ActorRange, MinionsScaling
from tests.services.scaler.scaling.seen import biased_agent, seen

LAST = PastRound(
    round_index=3,
    requested=16,
    num_actors=16,
    training_return=1.0,
    loss=0.5,
    kl=0.02,
    learner_s=2.0,
    actor_s=3.0,
)


def test_the_state_has_the_published_eight_numbers_in_their_order() -> None:
    state = scheduler_state(seen(4, past=(LAST,), evaluation_return=120.0, remaining_usd=1.5))
    assert state.vector == (4.0, 0.5, 120.0, 0.02, 2.0, 3.0, 5.0, 1.5)


def test_the_state_is_of_the_newest_round_of_those_it_asks_to_see() -> None:
    policy = MinionsPolicy(MinionsScaling(policy="minionsrl", agent=biased_agent(0.0)))
    older = PastRound(round_index=2, requested=8, num_actors=8, loss=9.0, learner_s=9.0)
    assert scheduler_state(seen(4, past=(older, LAST))) == scheduler_state(seen(4, past=(LAST,)))
    assert policy.num_rounds == 1


def test_before_the_first_round_all_is_zero_but_the_budget() -> None:
    assert scheduler_state(seen(0, remaining_usd=5.0)).vector == (0.0,) * 7 + (5.0,)


def test_draws_follow_the_agents_distribution() -> None:
    agent = biased_agent(0.0, 1.0, -1.0, 0.5)
    policy = MinionsPolicy(MinionsScaling(policy="minionsrl", agent=agent))
    actors = ActorRange(min=1, max=64)
    drawn = Counter(
        policy.decide(seen(k, actors=actors, seed=seed)).requested
        for seed in range(40)
        for k in range(50)
    )
    probabilities = choice_probabilities(agent, scheduler_state(seen()))
    expected = [2000 * p for p in probabilities]
    assert chisquare([drawn[n] for n in (1, 2, 3, 4)], expected).pvalue > 0.01


@pytest.mark.parametrize(("low", "high", "expected"), [(8, 64, 8), (1, 2, 2), (1, 64, 3)])
def test_a_choice_outside_the_range_gets_its_nearer_end(low: int, high: int, expected: int) -> None:
    agent = biased_agent(-99.0, -99.0, 99.0)
    policy = MinionsPolicy(MinionsScaling(policy="minionsrl", agent=agent))
    decision = policy.decide(seen(actors=ActorRange(min=low, max=high)))
    assert decision.requested == expected
    assert ("3 drawn" in decision.reason) == (expected != 3)


def test_the_reason_tells_how_likely_the_draw_was() -> None:
    # Softmax of log(1), log(2) and log(5).
    agent = biased_agent(0.0, math.log(2.0), math.log(5.0))
    policy = MinionsPolicy(MinionsScaling(policy="minionsrl", agent=agent))
    actors = ActorRange(min=1, max=3)
    decisions = [policy.decide(seen(k, actors=actors)) for k in range(50)]
    told = {1: "0.125", 2: "0.250", 3: "0.625"}
    assert {d.requested for d in decisions} == {1, 2, 3}
    for d in decisions:
        assert d.reason == (f"minionsrl: {d.requested} actors with probability {told[d.requested]}")
