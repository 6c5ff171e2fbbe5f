"""A run's returns against environment steps and dollars: pure functions of a `Run`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from nitro.runs.reading import Run
from shared.contracts.rounds import RoundResult

Measure = Literal["evaluation", "training"]
"""Deterministic evaluation episodes, or training episodes."""
RECENT_EPISODES = 100
"""Training episodes in the mean that is the training return, as usual in the field."""
FEWEST_FOR_INTERVAL = 4
"""Fewest seeds for an interval: for two or three, the values themselves say more."""
_RESAMPLES = 10_000
_CONFIDENCE = 95.0


class Interval(BaseModel):
    """The mean of one value per seed; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    mean: float
    low: float
    """Lower end of the 95 % bootstrap interval of the mean; the mean itself for one value."""
    high: float
    count: int
    """Number of values."""

    def __str__(self) -> str:
        if self.count < FEWEST_FOR_INTERVAL:
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} (95 % interval {self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Returns of a run with the steps and dollars so far; K points in order."""

    measure: Measure
    env_steps: NDArray[np.float64]  # [K]
    cost_usd: NDArray[np.float64]  # [K]
    returns: NDArray[np.float64]  # [K]

    def at_steps(self, steps: float) -> float:
        """Return the linearly interpolated return after this many environment steps."""
        return float(np.interp(steps, self.env_steps, self.returns))

    def at_usd(self, usd: float) -> float:
        """Return the linearly interpolated return after this many dollars."""
        return float(np.interp(usd, self.cost_usd, self.returns))


def recent_return(results: Iterable[RoundResult]) -> float | None:
    """Return the mean of the last 100 training episodes; None before the first has ended."""
    episodes = [value for result in results for value in result.episode_returns]
    return fmean(episodes[-RECENT_EPISODES:]) if episodes else None


def taken(run: Run) -> tuple[list[int], list[float]]:
    """Return environment steps and dollars after 0, 1, 2, ... updates.

    The cost of the job's end, with the final evaluation, counts with the last update.
    """
    results = [line.result for line in run.rounds if line.result]
    billed: dict[int, float] = {}
    for line in run.ledger:
        billed[line.round] = billed.get(line.round, 0.0) + line.amount_usd
    steps = [0, *accumulate(result.env_steps for result in results)]
    dollars = [0.0, *accumulate(billed.get(result.round, 0.0) for result in results)]
    return steps, [*dollars[:-1], max(dollars[-1], sum(billed.values()))]


def curve(run: Run, measure: Measure) -> Curve:
    """Return a run's evaluations, or the means of its last 100 training episodes by update."""
    steps, dollars = taken(run)
    if measure == "evaluation":
        points = [
            (min(updates, len(steps) - 1), fmean(evaluation.returns))
            for updates, evaluation in run.evaluations
            if evaluation.returns
        ]
    else:
        points = _training_points([line.result for line in run.rounds if line.result])
    return Curve(
        measure=measure,
        env_steps=np.array([steps[updates] for updates, _ in points], dtype=float),
        cost_usd=np.array([dollars[updates] for updates, _ in points], dtype=float),
        returns=np.array([value for _, value in points], dtype=float),
    )


def _training_points(results: Sequence[RoundResult]) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    recent: list[float] = []
    for updates, result in enumerate(results, start=1):
        recent = [*recent, *result.episode_returns][-RECENT_EPISODES:]
        if recent:
            points.append((updates, fmean(recent)))
    return points


def common_measure(runs: Sequence[Run]) -> Measure:
    """Return the common measure of runs: evaluations if each run has two, or else training."""
    evaluated = all(sum(bool(e.returns) for _, e in run.evaluations) > 1 for run in runs)
    return "evaluation" if evaluated else "training"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of at least one value with its percentile bootstrap interval.

    Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3.
    """
    mean, low, high = bootstrap(np.array(values, dtype=float)[:, None])
    return Interval(mean=mean.item(), low=low.item(), high=high.item(), count=len(values))


def bootstrap(
    values: NDArray[np.float64],  # [seeds, K]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over seeds and both ends of its 95 % interval, each [K].

    Whole seeds are resampled with replacement; equal values give equal intervals.
    """
    num = len(values)
    drawn = np.random.default_rng(0).multinomial(num, np.full(num, 1 / num), size=_RESAMPLES)
    means = drawn @ values / num  # [resamples, K]
    tail = (100.0 - _CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100.0 - tail], axis=0)
    return values.mean(axis=0), low, high
