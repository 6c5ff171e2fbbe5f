"""Interquartile means, stratified bootstrap intervals and probability of improvement.

Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021
(arXiv 2108.13264), sections 4.1 to 4.3, in the conventions of its library rliable:

- The interquartile mean excludes the lowest and the highest quarter of all runs of all tasks,
  each rounded down to whole runs.
- Seeds are drawn with replacement within each task, the stratum; 95 % intervals are percentiles.
- The probability of improvement is the mean over tasks of P(X > Y) + P(X = Y) / 2.

rliable requires the same number of seeds in each task. Here the number may differ, because jobs
fail. rliable uses another generator, so its intervals differ from ours by the sampling error of
50,000 samples.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Array = NDArray[np.float64]
Tasks = Sequence[Array]
"""Scores by task, each [seeds]."""
RESAMPLES = 50_000
"""The same as in rliable."""
_TRIM = 0.25
_TAIL = 2.5
"""Percent outside each end of an interval."""
_AT_ONCE = 2_000_000
"""Numbers per draw, to bound memory."""


class Estimate(BaseModel):
    """A value with its 95 % interval; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float
    high: float

    def told(self, digits: int = 1) -> str:
        """Format it as a table cell."""
        value, low, high = (f"{each:.{digits}f}" for each in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def interquartile_mean(scores: Array) -> Array:
    """Return the mean without the lowest and the highest quarter of the last axis.

    Args:
        scores: [..., N], at least one.

    Returns:
        [...].
    """
    number = scores.shape[-1]
    cut = int(_TRIM * number)
    middle: Array = np.sort(scores, axis=-1)[..., cut : number - cut].mean(axis=-1)
    return middle


def interquartile_mean_interval(tasks: Tasks, *, resamples: int = RESAMPLES) -> Estimate:
    """Return the interquartile mean of all scores of all tasks, with its interval."""
    return _estimate(
        float(interquartile_mean(np.concatenate(tasks))),
        lambda drawn: interquartile_mean(np.concatenate(drawn, axis=1)),
        tasks,
        resamples,
    )


def probability_of_improvement(of: Tasks, over: Tasks, *, resamples: int = RESAMPLES) -> Estimate:
    """Return the probability that a run of one setting has a higher score than one of another.

    Args:
        of: Scores of the first setting by task.
        over: Scores of the second setting, with the same tasks in the same order.
        resamples: Bootstrap samples.
    """

    def improvement(drawn: Tasks) -> Array:
        pairs = zip(drawn[: len(of)], drawn[len(of) :], strict=True)
        better = [_better(x, y) for x, y in pairs]
        mean: Array = np.mean(better, axis=0)
        return mean

    both = [*of, *over]
    exact = improvement([scores[None] for scores in both])
    return _estimate(float(exact[0]), improvement, both, resamples)


def interquartile_band(values: Array, *, resamples: int = 2_000) -> tuple[Array, Array, Array]:
    """Return the interquartile mean over seeds and both ends of its pointwise interval.

    Args:
        values: [seeds, K], one curve per seed.
        resamples: Bootstrap samples.

    Returns:
        Three arrays [K].
    """
    rng = np.random.default_rng(0)
    means = [
        interquartile_mean(values[rng.integers(len(values), size=len(values))].T)
        for _ in range(resamples)
    ]
    low, high = np.percentile(means, [_TAIL, 100 - _TAIL], axis=0)
    return interquartile_mean(values.T), low, high


def _better(x: Array, y: Array) -> Array:
    """Return P(X > Y) + P(X = Y) / 2 of each row: x [R, N], y [R, M] -> [R]."""
    greater = (x[:, :, None] > y[:, None, :]).mean(axis=(1, 2))
    equal = (x[:, :, None] == y[:, None, :]).mean(axis=(1, 2))
    both: Array = greater + equal / 2
    return both


def _estimate(
    value: float, statistic: Callable[[Tasks], Array], tasks: Tasks, resamples: int
) -> Estimate:
    """Return a value with its statistic's percentiles over stratified bootstrap samples."""
    found = np.concatenate([statistic(drawn) for drawn in _draws(tasks, resamples)])
    low, high = np.percentile(found, [_TAIL, 100 - _TAIL])
    return Estimate(value=value, low=float(low), high=float(high))


def _draws(tasks: Tasks, resamples: int) -> Iterator[list[Array]]:
    """Yield samples of all tasks, each [R, seeds], `resamples` of them together."""
    rng = np.random.default_rng(0)
    widest = max(map(len, tasks))
    at_once = max(1, _AT_ONCE // max(widest**2, sum(map(len, tasks))))
    for begin in range(0, resamples, at_once):
        rows = min(at_once, resamples - begin)
        yield [task[rng.integers(len(task), size=(rows, len(task)))] for task in tasks]
