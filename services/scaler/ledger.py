"""The bill: what a launched round cost, line by line, once everything about it is known.

A round's worst case is reserved when it is planned. The reservation is replaced by lines when two
things are known: the outcome of every invocation, and how long the learner was busy with the round.
Two clocks can bill the time-based items. `wall` takes the time that passed. `projected` takes the
time the same round would have taken on AWS, for runs on one machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from services.scaler.store.base import LaunchOutcome, OpenAttempt
from shared.billing import LedgerItem, LedgerLine
from shared.contracts import LaunchCounts
from shared.costs import (
    EXECUTIONS_PER_TASK,
    CostBasis,
    lambda_gb_seconds,
    projected_round_s,
)

Clock = Literal["wall", "projected"]
NOTHING_LAUNCHED = LaunchOutcome(
    counts=LaunchCounts(requested=0, succeeded=0, failed=0, reissued=0, throttled=0),
    requests=0,
    durations_s=(),
    slowest_sample_s=0.0,
    slowest_evaluation_s=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A final bill."""

    lines: tuple[LedgerLine, ...]
    projected_s: float
    """How long the round takes on AWS."""

    @property
    def amount_usd(self) -> float:
        """Sum of the lines."""
        return sum(line.amount_usd for line in self.lines)


def settle(attempt: OpenAttempt, basis: CostBasis, clock: Clock) -> Settlement | None:
    """Return the bill of one launched (round, attempt), or None while something is unknown."""
    outcome, learner_s, held_s = attempt.outcome, attempt.learner_s, attempt.held_s
    if outcome is None or learner_s is None or held_s is None:
        return None
    projected_s = projected_round_s(
        num_invocations=attempt.num_invocations,
        slowest_sample_s=outcome.slowest_sample_s,
        slowest_evaluation_s=outcome.slowest_evaluation_s,
        learner_s=learner_s,
        open_rounds=attempt.open_rounds,
    )
    billed_s = held_s if clock == "wall" else projected_s
    bill = _Bill(round_index=attempt.round, attempt=attempt.attempt)
    lines = (
        *held_lines(bill, billed_s, basis),
        *_duration_lines(bill, outcome, attempt.warm, basis),
        bill.line(
            "lambda_requests", outcome.requests, "request", basis.prices.lambda_usd_per_request
        ),
    )
    return Settlement(
        lines=tuple(line for line in lines if line.quantity > 0), projected_s=projected_s
    )


def settle_held(round_index: int, held_s: float, basis: CostBasis) -> tuple[LedgerLine, ...]:
    """Return the bill of time in which a learner held the job outside any round."""
    bill = _Bill(round_index=round_index, attempt=0)
    return tuple(line for line in held_lines(bill, held_s, basis) if line.quantity > 0)


def worst_outcome(num_invocations: int, *, timeout_s: float) -> LaunchOutcome:
    """Return what is billed for invocations nobody knows the end of: two full executions each."""
    executions = EXECUTIONS_PER_TASK * num_invocations
    slowest_s = EXECUTIONS_PER_TASK * timeout_s if num_invocations else 0.0
    return LaunchOutcome(
        counts=LaunchCounts(
            requested=num_invocations,
            succeeded=0,
            failed=0,
            reissued=0,
            throttled=0,
            unknown=num_invocations,
        ),
        requests=executions,
        durations_s=(timeout_s,) * executions,
        slowest_sample_s=slowest_s,
        slowest_evaluation_s=0.0,
    )


def by_item(lines: Iterable[LedgerLine]) -> dict[LedgerItem, float]:
    """Return the sum of each item."""
    sums: dict[LedgerItem, float] = {}
    for line in lines:
        sums[line.item] = sums.get(line.item, 0.0) + line.amount_usd
    return sums


def assumptions(
    basis: CostBasis, clock: Clock, learner_instance: str, *, open_rounds: int = 1
) -> tuple[str, ...]:
    """Return in words what a bill takes for granted."""
    time_based = (
        "Learner, cache, scaler and provisioned concurrency are billed for the wall time from the "
        "lease to the end of the job."
        if clock == "wall"
        else "Learner, cache, scaler and provisioned concurrency are billed for the time the "
        "rounds would take on AWS: launch ramp (1,000 environments at once, then 1,000 per 10 s), "
        "slowest actor, then the learner's update, curvature and checkpoint time as measured here. "
        "Boot times are left out."
    )
    if clock == "projected" and open_rounds > 1:
        time_based += (
            f" {open_rounds} rounds are open at a time: each is billed its share of that time, and "
            "never less than the learner's."
        )
    durations = (
        "Actor durations are the billed durations Lambda reports."
        if clock == "wall"
        else f"Actor durations are measured here and divided by the CPU share of "
        f"{basis.memory_mb} MB on Lambda (1,769 MB is one core), at most the time-out of "
        f"{basis.function_timeout_s:g} s."
    )
    return (
        f"Prices: {basis.prices.source} ({basis.prices.date}).",
        f"The learner is billed as one {learner_instance}.",
        time_based,
        durations,
        "An invocation whose end is unknown is billed as two executions up to the time-out.",
        "Provisioned concurrency is billed by the second, although AWS rounds the time it is "
        "configured up to 5 minutes.",
        "Not included: container registry, logs, artifacts, network transfer and endpoints, free "
        "tiers and discounts.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bill:
    """Makes the lines of one (round, attempt)."""

    round_index: int
    attempt: int

    def line(
        self,
        item: LedgerItem,
        quantity: float,
        unit: Literal["second", "GB-second", "request"],
        unit_price_usd: float,
    ) -> LedgerLine:
        return LedgerLine(
            round=self.round_index,
            attempt=self.attempt,
            item=item,
            quantity=quantity,
            unit=unit,
            unit_price_usd=unit_price_usd,
            amount_usd=quantity * unit_price_usd,
        )


def held_lines(bill: _Bill, held_s: float, basis: CostBasis) -> tuple[LedgerLine, ...]:
    """Return the time-based items of a stretch of time."""
    return (
        bill.line("learner", held_s, "second", basis.learner_usd_per_s),
        bill.line("cache", held_s, "second", basis.cache_usd_per_s),
        bill.line("scaler", held_s, "second", basis.scaler_usd_per_s),
        bill.line(
            "provisioned_concurrency",
            held_s * basis.provisioned_gb,
            "GB-second",
            basis.prices.provisioned_usd_per_gb_s,
        ),
    )


def _duration_lines(
    bill: _Bill, outcome: LaunchOutcome, warm: int, basis: CostBasis
) -> tuple[LedgerLine, ...]:
    """Bill executions on provisioned concurrency at its own price, the shortest ones at that."""
    gb_s = sorted(lambda_gb_seconds(d, basis.memory_mb) for d in outcome.durations_s)
    prices = basis.prices
    return (
        bill.line(
            "lambda_duration",
            sum(gb_s[:warm]),
            "GB-second",
            prices.provisioned_duration_usd_per_gb_s,
        ),
        bill.line("lambda_duration", sum(gb_s[warm:]), "GB-second", prices.lambda_usd_per_gb_s),
    )
