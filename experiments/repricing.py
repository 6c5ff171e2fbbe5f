"""What a recorded run would have taken and cost at other prices: nothing is trained again.

A run's bill has two parts. Learner, cache, scaler and environments that are kept warm are paid for
its seconds; executions and requests follow its steps. So the seconds of a round are what its bill
leaves after its steps, and both parts can be multiplied by other prices.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from experiments.outcome import JobOutcome
from shared.contracts.billing import LedgerItem

_EXECUTIONS: tuple[LedgerItem, ...] = ("lambda_duration", "lambda_requests")
_RESAMPLES = 2000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Prices, and how dear a step is."""

    name: str
    learner_usd_per_s: float
    others_usd_per_s: float
    """Cache and scaler."""
    warm_usd_per_s: float
    """Environments that are kept warm, used or not."""
    execution_usd_per_gb_s: float
    request_usd: float
    memory_gb: float
    """Of an actor."""
    start_s: float = 0.0
    """How long the learner's machine takes to its first round; it is paid for that, too."""
    extra_step_s: float = 0.0
    """How much longer a step of the simulator takes, on an actor's share of a core. Evaluations are
    left as they were: how many there are is the study's doing."""

    @property
    def held_usd_per_s(self) -> float:
        """Price of a second of the run."""
        return self.learner_usd_per_s + self.others_usd_per_s + self.warm_usd_per_s


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds and dollars after each number of updates, from none on; the start included."""

    seconds: tuple[float, ...]
    usd: tuple[float, ...]


def reprice(run: JobOutcome, regime: Regime, *, steps_per_actor: int) -> Spent:
    """Return what a run would have spent by each of its updates.

    Args:
        run: As it was made and billed.
        regime: The other prices.
        steps_per_actor: Steps of one invocation, which a round waits for.

    Raises:
        ValueError: Its bill has no part that is paid by the second.
    """
    steps = run.env_steps
    executions_usd = sum(run.by_item.get(item, 0.0) for item in _EXECUTIONS)
    held_usd_per_s = (sum(run.by_item.values()) - executions_usd) / run.projected_wall_s
    if held_usd_per_s <= 0.0:
        raise ValueError("the run's bill has no learner: its seconds cannot be told")
    gb_s_per_step = run.lambda_gb_s / steps + regime.extra_step_s * regime.memory_gb
    usd_per_step = (
        gb_s_per_step * regime.execution_usd_per_gb_s
        + run.lambda_requests / steps * regime.request_usd
    )
    waited_s = steps_per_actor * regime.extra_step_s
    seconds, usd = [], []
    for each in run.rounds:
        measured_s = (each.cost_usd - executions_usd / steps * each.env_steps) / held_usd_per_s
        seconds.append(max(0.0, measured_s) + waited_s)
        usd.append(seconds[-1] * regime.held_usd_per_s + usd_per_step * each.env_steps)
    started_usd = regime.start_s * regime.learner_usd_per_s
    return Spent(
        tuple(accumulate(seconds, initial=regime.start_s)),
        tuple(accumulate(usd, initial=started_usd)),
    )


def updates_to(run: JobOutcome, target: float, *, most_steps: float = math.inf) -> int | None:
    """Return the updates after which an evaluation first had a return.

    Args:
        run: As it was made.
        target: The return.
        most_steps: Evaluations of policies that had more steps do not count.

    Returns:
        None if none had it.
    """
    looks = (e for e in run.evaluations if e.env_steps <= most_steps)
    return next((e.updates for e in looks if e.mean_return >= target), None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % bootstrap interval; infinite where a return was never reached."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        value, low, high = map(_told, (self.value, self.low, self.high))
        return value if low == high else f"{value} [{low}, {high}]"


def censored_median(values: Sequence[float]) -> Estimate:
    """Return the median of values of which some may be infinite: not reached in the run.

    Args:
        values: One a run; equal input gives equal output.

    Raises:
        ValueError: There is none.
    """
    return estimate(_medians(values))


def estimate(resampled: NDArray[np.float64]) -> Estimate:
    """Return a number and its interval.

    Args:
        resampled: [1 + resamples] The number of all runs, then those of runs drawn again.
    """
    drawn = np.sort(resampled[1:])
    low, high = (drawn[int(tail * len(drawn))] for tail in _TAILS)
    return Estimate(float(resampled[0]), float(low), float(high))


def regrets(
    spent: Mapping[str, Mapping[str, Sequence[float]]], fixed: Sequence[str]
) -> dict[str, dict[str, Estimate]]:
    """Return every condition's dollars over those of the best fixed number, and the worst of these.

    The best is chosen anew from runs that are drawn again, so an interval has the luck of the
    choice in it.

    Args:
        spent: Dollars of each run, by regime and condition; regimes have the same runs in order.
        fixed: Conditions with a fixed number; at least one was made.

    Returns:
        By condition, then by regime and `worst`; 0 where the condition alone reached the return.
    """
    by_regime: dict[str, dict[str, NDArray[np.float64]]] = {}
    for regime, conditions in spent.items():
        medians = {name: _medians(values) for name, values in conditions.items()}
        best = np.minimum.reduce([medians[name] for name in fixed if name in medians])
        by_regime[regime] = {name: _over(usd, best) for name, usd in medians.items()}
    found: dict[str, dict[str, Estimate]] = {}
    for name in next(iter(spent.values())):
        own = {regime: of[name] for regime, of in by_regime.items()}
        worst = np.maximum.reduce(list(own.values()))
        found[name] = {of: estimate(values) for of, values in (*own.items(), ("worst", worst))}
    return found


def _medians(values: Sequence[float]) -> NDArray[np.float64]:
    """[1 + resamples] The median, then those of runs drawn again; equal draws for equal counts."""
    if not values:
        raise ValueError("a median needs at least one run")
    runs = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(0).integers(len(runs), size=(_RESAMPLES, len(runs)))
    rows = np.sort(np.vstack([runs, runs[drawn]]), axis=1)
    lower, upper = rows[:, (len(runs) - 1) // 2], rows[:, len(runs) // 2]
    return np.where(np.isinf(upper), upper, (lower + upper) / 2.0)


def _over(usd: NDArray[np.float64], best: NDArray[np.float64]) -> NDArray[np.float64]:
    none = np.isinf(usd)
    ratio = np.divide(usd, best, out=np.zeros_like(usd), where=~none & ~np.isinf(best))
    return np.where(none, np.inf, ratio)


def _told(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}"
