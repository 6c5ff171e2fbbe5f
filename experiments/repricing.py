"""Time and cost of a recorded run at any prices: nothing is trained again.

A run's rounds are counted: actors, steps, steps of evaluation episodes, gradient steps. Counts
times calibrated durations (`experiments.durations`) make a round as Lambda would have measured it,
and the ledger's own model prices that. So what a run costs does not depend on how busy the machine
was on which it was made. What its own ledger says is left as it was recorded.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Self

import numpy as np
from numpy.typing import NDArray

from experiments.durations import Durations
from experiments.outcome import JobOutcome, RoundOutcome
from nitro.planning.workload import foretold_round
from shared.contracts.learner_kind import LearnerKind
from shared.deployment.config import NitroConfig
from shared.money.costs import CostBasis
from shared.money.one_server import BOOT_S, SERVER_CORES, one_server_round_s
from shared.money.round_costs import (
    MeasuredRound,
    execution_items,
    held_items,
    serverless_round_s,
)

_RESAMPLES = 2000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Prices, a learner, and how dear a step is."""

    name: str
    basis: CostBasis
    """`provisioned` environments are kept by AWS; where it is 0, as many as the run's largest round
    needs are pinged."""
    learner: LearnerKind
    start_s: float = 0.0
    """How long the learner's machine takes to its first round; it is paid for that, too."""
    extra_step_s: float = 0.0
    """How much longer a step of the simulator takes on one core. Evaluations are left as they were:
    how many there are is the study's doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A run, and how long its parts take."""

    run: JobOutcome
    durations: Durations
    measurements: float = 1.0
    """Measurements of the policy in each round: one, and parts of one that are as long."""
    gradient_steps: int | None = None
    """Of each round; None where they follow from its samples."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds and dollars until each policy was known and evaluated, the start included.

    The first is the policy of before any round. What a policy's evaluation took is in its own
    numbers alone, as rounds do not wait for it unless it is longer.
    """

    seconds: tuple[float, ...]
    usd: tuple[float, ...]


def reprice(made: Made, regime: Regime) -> Spent:
    """Return what a run takes and costs until each of its policies."""
    basis = _kept_warm(regime.basis, made.run)
    rounds = counted(made, regime)
    seconds = [serverless_round_s(each, basis) for each in rounds]
    usd = [round_usd(each, basis) for each in rounds]
    looks = [_look(made, each, regime) for each in made.run.rounds]
    look_s = [serverless_round_s(each, basis) if each.requests else 0.0 for each in looks]
    look_usd = [round_usd(each, basis) if each.requests else 0.0 for each in looks]
    started_usd = regime.start_s * regime.basis.learner_usd_per_s
    return Spent(
        _until(seconds, [*look_s, 0.0], start=regime.start_s),
        _until(usd, [*look_usd, 0.0], start=started_usd),
    )


def on_best_server(made: Made, regime: Regime, *, updates: int, boot_s: float = BOOT_S) -> float:
    """Return the dollars of the first rounds on the one server on which they cost least.

    Its boot is paid for, too. The learner has no GPU there, and two cores.
    """
    unhurried = replace(regime.basis, function_timeout_s=math.inf)
    alike = replace(regime, basis=unhurried, learner="cpu")
    rounds = counted(made, alike)[:updates]
    prices = regime.basis.prices
    usd = []
    for kind, cores in SERVER_CORES.items():
        if kind in prices.server_usd_per_hour:
            seconds = sum(one_server_round_s(each, unhurried, cores) for each in rounds)
            usd.append((boot_s + seconds) * prices.server_usd_per_s(kind))
    return min(usd, default=math.inf)


def on_own_cores(made: Made, regime: Regime, *, updates: int, start_s: float) -> float:
    """Return the dollars of the first rounds where the learner's own cores do all.

    Args:
        made: The run.
        regime: Its prices are those of the learner.
        updates: How many rounds.
        start_s: Of the learner, which is paid for, too.
    """
    unhurried = replace(regime.basis, function_timeout_s=math.inf, provisioned=0, pinged=0)
    rounds = counted(made, replace(regime, basis=unhurried))[:updates]
    cores = int(NitroConfig().cpu_learner_vcpu)
    seconds = sum(one_server_round_s(each, unhurried, cores) for each in rounds)
    return start_s * unhurried.learner_usd_per_s + seconds * unhurried.usd_per_s


def counted(made: Made, regime: Regime) -> list[MeasuredRound]:
    """Return a run's rounds as Lambda would have measured them, from counts and durations.

    An environment starts cold where a round has more invocations than any before it.
    """
    found, most = list[MeasuredRound](), regime.basis.provisioned
    for each in made.run.rounds:
        invocations = each.num_actors + len(each.evaluated_steps)
        steps = math.ceil(each.env_steps / each.num_actors) if each.num_actors else 0
        found.append(
            foretold_round(
                regime.basis,
                num_actors=each.num_actors,
                fragment_s=made.durations.fragment_s(steps) + steps * regime.extra_step_s,
                episodes_s=_episodes_s(made, each),
                received_bytes=each.env_steps * made.durations.bytes_per_sample,
                learner_s=_learner_s(made, each, regime.learner),
                cold=max(0, invocations - most),
            )
        )
        most = max(most, invocations)
    return found


def _look(made: Made, each: RoundOutcome, regime: Regime) -> MeasuredRound:
    """Return the evaluation beside a round, as if it had run by itself."""
    return foretold_round(
        regime.basis,
        num_actors=0,
        fragment_s=0.0,
        episodes_s=_episodes_s(made, each),
        received_bytes=0.0,
        learner_s=0.0,
        cold=0,
    )


def _episodes_s(made: Made, each: RoundOutcome) -> list[float]:
    return [made.durations.episode_s(steps) for steps in each.evaluated_steps]


def _learner_s(made: Made, each: RoundOutcome, kind: LearnerKind) -> float:
    if not each.env_steps:
        return 0.0
    steps = made.gradient_steps or made.durations.gradient_steps(each.env_steps)
    return made.durations.learner_s(steps, kind, measurements=made.measurements)


def _until(each: Sequence[float], looks: Sequence[float], *, start: float) -> tuple[float, ...]:
    """Return sums over all rounds before, with the look after each of these."""
    sums = accumulate(each, initial=start)
    return tuple(total + look for total, look in zip(sums, looks, strict=True))


def _kept_warm(basis: CostBasis, run: JobOutcome) -> CostBasis:
    most = max((r.num_actors + len(r.evaluated_steps) for r in run.rounds), default=0)
    return basis if basis.provisioned else replace(basis, pinged=most)


def round_usd(each: MeasuredRound, basis: CostBasis) -> float:
    """Return what a round costs: its time, and its executions."""
    held_s = serverless_round_s(each, basis)
    items = (*held_items(held_s, basis), *execution_items(each, basis))
    return sum(item.amount_usd for item in items)


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

    def less_than(self, other: Self) -> str:
        """Return the verdict whether it is less: only where the intervals do not overlap."""
        if self.high < other.low:
            return "holds"
        if self.low > other.high:
            return "does not hold: the other way round"
        return "not decided: the intervals overlap"


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
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
