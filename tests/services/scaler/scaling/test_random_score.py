"""The random controls against the distributions they are meant to have."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from services.scaler.scaling.random_score import RandomPolicy
from shared.contracts.scaling_spec import ActorRange, RandomScaling
from tests.services.scaler.scaling.seen import RANGES, seen

SCORES = RandomPolicy(RandomScaling(policy="random", decay=1.0))


def test_scores_are_uniform_and_differ_between_rounds_and_seeds() -> None:
    decisions = [SCORES.decide(seen(k, seed=seed)) for seed in range(20) for k in range(100)]
    scores = [d.score for d in decisions if d.score is not None]
    assert len(set(scores)) == 2000
    assert kstest(scores, "uniform").pvalue > 0.01


@given(seed=st.integers(0, 2**31 - 1), k=st.integers(0, 300), decay=st.floats(0.5, 1.0))
def test_the_score_decays_and_the_count_follows_it(seed: int, k: int, decay: float) -> None:
    policy = RandomPolicy(RandomScaling(policy="random", decay=decay))
    got = policy.decide(seen(k, seed=seed))
    plain = SCORES.decide(seen(k, seed=seed)).score
    assert plain is not None
    assert got.score == plain * decay**k
    assert got.requested == min(64, max(8, int(64 * got.score + 0.5)))


@given(actors=RANGES, data=st.data(), seed=st.integers(0, 2**31 - 1), pair=st.integers(0, 500))
def test_two_rounds_together_have_the_mean(
    actors: ActorRange, data: st.DataObject, seed: int, pair: int
) -> None:
    mean = data.draw(st.floats(actors.min, actors.max))
    policy = RandomPolicy(RandomScaling(policy="random", mean_actors=mean))
    both = [policy.decide(seen(2 * pair + i, actors=actors, seed=seed)).requested for i in (0, 1)]
    assert abs(sum(both) - 2 * mean) <= 1.0 + 1e-9


@pytest.mark.parametrize("mean", [8.0, 20.3, 36.0, 63.5, 64.0])
def test_counts_have_the_mean_and_the_widest_spread_around_it(mean: float) -> None:
    policy = RandomPolicy(RandomScaling(policy="random", mean_actors=mean))
    counts = [policy.decide(seen(2 * k, seed=7)).requested for k in range(4000)]
    reach = min(mean - 8, 64 - mean)
    assert statistics.fmean(counts) == pytest.approx(mean, abs=0.05 + 0.03 * reach)
    # A uniform distribution of this width, up to the rounding.
    assert statistics.pstdev(counts) == pytest.approx(2 * reach / 12**0.5, abs=0.6)
    assert min(counts) <= mean - reach + 1
    assert max(counts) >= mean + reach - 1


def test_a_mean_between_two_counts_is_met_by_rounding_at_random() -> None:
    policy = RandomPolicy(RandomScaling(policy="random", mean_actors=8.3))
    actors = ActorRange(min=8, max=9)
    over_rounds = [policy.decide(seen(k, actors=actors, seed=7)).requested for k in range(4000)]
    over_seeds = [policy.decide(seen(actors=actors, seed=seed)).requested for seed in range(4000)]
    for counts in (over_rounds, over_seeds):
        assert set(counts) == {8, 9}
        assert statistics.fmean(counts) == pytest.approx(8.3, abs=0.02)


@given(seed=st.integers(0, 2**31 - 1), pair=st.integers(0, 500), doubled=st.integers(16, 128))
def test_two_rounds_have_the_mean_exactly_when_twice_of_it_is_whole(
    seed: int, pair: int, doubled: int
) -> None:
    policy = RandomPolicy(RandomScaling(policy="random", mean_actors=doubled / 2))
    both = [policy.decide(seen(2 * pair + i, seed=seed)).requested for i in (0, 1)]
    assert sum(both) == doubled


def test_counts_around_a_mean_differ_between_seeds() -> None:
    policy = RandomPolicy(RandomScaling(policy="random", mean_actors=36.0))
    assert len({policy.decide(seen(seed=seed)).requested for seed in range(100)}) > 20
