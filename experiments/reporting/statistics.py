"""Interquartile means and their bootstrap intervals, as Agarwal et al. (NeurIPS 2021) recommend.

Their library, rliable, has no wheel and brings arch, pandas, seaborn and absl along, of which two
functions would be used. SciPy has the same two: `trim_mean` is the interquartile mean, and
`bootstrap` with one sample per stratum resamples runs within each stratum.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat
from scipy import stats

from shared.contracts.message import Message, PositiveInt

_RESAMPLES = 2000
_CONFIDENCE = 0.95
_CUT = 0.25
"""Share of the values that is left out at each end."""
FEWEST_RUNS = 4
"""Of each side of a claim. Intervals of fewer reach from the lowest to the highest run: those of
two equal conditions come apart by chance in one of three cases with two runs each, in one of ten
with three, in one of 35 with four."""


class Interval(Message):
    """An interquartile mean with a 95 % interval; the value itself where a stratum has one run."""

    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    runs: PositiveInt
    """Of a stratum: of the one with the fewest."""

    def __str__(self) -> str:
        if self.runs < 2:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def iqm(values: Sequence[float]) -> float:
    """Return the mean of the middle half; of all values where there are fewer than four."""
    return float(stats.trim_mean(np.asarray(values, dtype=float), _CUT))


def interval(*strata: Sequence[float]) -> Interval:
    """Return the interquartile mean over all runs and its stratified bootstrap interval.

    Args:
        strata: One sequence of runs per environment; equal input gives equal output.

    Raises:
        ValueError: A stratum has no run.
    """
    pooled = [value for stratum in strata for value in stratum]
    if not (strata and all(strata)):
        raise ValueError("an interval needs at least one run")
    value, fewest = iqm(pooled), min(map(len, strata))
    if fewest < 2:
        return Interval(value=value, low=value, high=value, runs=fewest)
    found = stats.bootstrap(
        [np.asarray(stratum, dtype=float) for stratum in strata],
        _pooled_iqm,
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(value=value, low=float(found.low), high=float(found.high), runs=fewest)


def _pooled_iqm(*samples: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    pooled = np.concatenate(samples, axis=axis)
    return np.asarray(stats.trim_mean(pooled, _CUT, axis=axis))


def verdict(better: Interval, worse: Interval) -> str:
    """Say whether one is larger than the other: only where the intervals do not overlap.

    Intervals of fewer than four runs decide nothing.
    """
    if min(better.runs, worse.runs) < FEWEST_RUNS:
        return "not decided: too few runs"
    if better.low > worse.high:
        return "holds"
    if better.high < worse.low:
        return "does not hold: the other way round"
    return "not decided: the intervals overlap"
