"""Interquartile means and intervals, against SciPy, naive loops and rliable itself."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import trim_mean

from nitro.sweeps.report.statistics import (
    interquartile_band,
    interquartile_mean,
    interquartile_mean_interval,
    probability_of_improvement,
)

Scores = NDArray[np.float64]


def recorded() -> tuple[Scores, Scores]:
    """Return the scores [10 seeds, 3 tasks] of two settings that rliable was asked about."""
    rng = np.random.default_rng(7)
    x = np.round(rng.normal(1.0, 0.5, (10, 3)), 3)
    return x, np.round(rng.normal(1.2, 0.5, (10, 3)), 3)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8, 11, 30])
def test_the_interquartile_mean_is_scipys_trimmed_mean(number: int) -> None:
    scores = np.random.default_rng(number).normal(size=number)
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25), abs=1e-12)


def test_values_and_intervals_are_those_of_rliable() -> None:
    """rliable 1.2.0 with 50,000 samples; its draws are others, which is what the ends allow for."""
    x, y = recorded()
    for scores, value, low, high in (
        (x, 0.8476874999999999, 0.6776875, 0.981875),
        (y, 1.1872500000000001, 1.0336249999999998, 1.3453749999999998),
    ):
        found = interquartile_mean_interval([*scores.T])
        assert found.value == pytest.approx(value, abs=1e-12)
        assert (found.low, found.high) == pytest.approx((low, high), abs=4e-3)
    better = probability_of_improvement([*y.T], [*x.T])
    assert better.value == pytest.approx(0.7233333333333333, abs=1e-12)
    assert (better.low, better.high) == pytest.approx((0.5933333, 0.84), abs=6e-3)


def test_an_interval_is_the_percentiles_of_a_naive_stratified_bootstrap() -> None:
    x, _ = recorded()
    tasks = [x[:4, 0], x[:, 1]]  # of different numbers of seeds
    rng = np.random.default_rng(3)
    means = [
        trim_mean(np.concatenate([rng.choice(task, len(task)) for task in tasks]), 0.25)
        for _ in range(20_000)
    ]
    found = interquartile_mean_interval(tasks)
    assert (found.low, found.high) == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.02)


def test_improvement_counts_pairs_and_halves_ties() -> None:
    better = probability_of_improvement([np.array([1.0, 2.0])], [np.array([1.0, 0.0])])
    assert better.value == (0.5 + 1 + 1 + 1) / 4
    assert 0.0 <= better.low <= better.value <= better.high <= 1.0


def test_equal_scores_have_no_width_and_few_seeds_their_ends() -> None:
    same = interquartile_mean_interval([np.full(5, 3.0)])
    assert (same.value, same.low, same.high) == (3.0, 3.0, 3.0)
    three = interquartile_mean_interval([np.array([1.0, 5.0, 9.0])])
    assert (three.low, three.high) == (1.0, 9.0)


def test_a_band_is_an_interval_at_each_point() -> None:
    curves = np.random.default_rng(1).normal(size=(8, 3))
    mean, low, high = interquartile_band(curves)
    assert mean == pytest.approx(trim_mean(curves, 0.25, axis=0))
    assert np.all((low <= mean) & (mean <= high))
