"""Interquartile means and intervals, against definitions and a naive bootstrap."""

from itertools import combinations

import numpy as np
import pytest

from experiments.reporting.statistics import Interval, interval, iqm, verdict


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end() -> None:
    assert iqm([100.0, 3.0, 1.0, 2.0, 4.0, -50.0, 5.0, 6.0]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert iqm([1.0, 2.0, 6.0]) == pytest.approx(3.0)  # too few to leave any out


def test_an_interval_agrees_with_a_bootstrap_written_out() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(10.0, 2.0, size=20)
    found = interval(values.tolist())
    resampled = [iqm(rng.choice(values, size=20).tolist()) for _ in range(4000)]
    assert found.value == pytest.approx(iqm(values.tolist()))
    assert found.low == pytest.approx(np.percentile(resampled, 2.5), abs=0.12)
    assert found.high == pytest.approx(np.percentile(resampled, 97.5), abs=0.12)


def test_strata_are_resampled_apart() -> None:
    # Two environments without any spread of their own: pooled resampling would mix them.
    found = interval([1.0] * 4, [9.0] * 4)
    assert (found.low, found.value, found.high) == (5.0, 5.0, 5.0)


def test_equal_runs_give_equal_intervals_and_one_run_has_none() -> None:
    assert interval([1.0, 2.0, 5.0]) == interval([1.0, 2.0, 5.0])
    assert interval([3.5]) == Interval(value=3.5, low=3.5, high=3.5, runs=1)
    with pytest.raises(ValueError, match="at least one run"):
        interval([])
    with pytest.raises(ValueError, match="at least one run"):
        interval([1.0, 2.0], [])


def test_an_environment_with_one_run_leaves_no_interval_and_counts_as_one_run() -> None:
    found = interval([1.0, 2.0, 3.0], [6.0])
    assert found == Interval(value=iqm([1.0, 2.0, 3.0, 6.0]), low=2.5, high=2.5, runs=1)
    two = interval([1.0, 2.0, 3.0], [6.0, 10.0])
    assert (two.low < two.value < two.high, two.runs) == (True, 2)


def test_a_claim_is_decided_only_where_intervals_are_apart() -> None:
    low = Interval(value=1.0, low=0.5, high=1.5, runs=5)
    high = Interval(value=3.0, low=2.0, high=4.0, runs=5)
    middle = Interval(value=1.8, low=1.0, high=2.5, runs=5)
    assert verdict(high, low) == "holds"
    assert verdict(low, high).startswith("does not hold")
    assert verdict(high, middle).startswith("not decided")
    assert verdict(high, low.model_copy(update={"runs": 1})).startswith("not decided")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_chance_alone_decides_at_most_one_claim_in_twenty(count: int) -> None:
    # All ways to deal equal conditions' runs to the two sides: each is as likely as the others.
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0][: 2 * count]
    deals = list(combinations(values, count))
    decided = 0
    for ours in deals:
        theirs = [value for value in values if value not in ours]
        decided += not verdict(interval(ours), interval(theirs)).startswith("not decided")
    assert decided / len(deals) <= 0.05
