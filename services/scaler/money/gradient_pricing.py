"""What calls of learner functions may cost, and what they did.

A job's rounds are planned with room for the worst case of an update's calls: each runs twice to the
time-out, from a cold start. That much is reserved with the first call of a round, before any is
launched, and replaced by the bill when the round's calls have ended.
"""

from collections.abc import Sequence

from pydantic import ValidationError

from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.presets import resolve
from shared.money.costs import EXECUTIONS_PER_TASK, CostBasis, lambda_gb_seconds


def calls_per_update(spec: JobSpec) -> int:
    """Return how many gradients an update of a job asks functions for; 0 without functions."""
    if not spec.learns_on_functions:
        return 0
    try:
        values = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    except ValidationError:
        return 0  # refused for that, before anything is priced with it
    passes: int = getattr(values, "num_epochs", 1)
    return passes * spec.learner_functions.slices


def worst_calls_usd(num_calls: int, basis: CostBasis) -> float:
    """Return the most that so many calls can cost."""
    prices = basis.prices
    gb_s = lambda_gb_seconds(
        basis.cold_start_s + basis.gradient_timeout_s, basis.gradient_memory_mb
    )
    each_usd = gb_s * prices.lambda_usd_per_gb_s + prices.lambda_usd_per_request
    return num_calls * EXECUTIONS_PER_TASK * each_usd


def worst_update_usd(spec: JobSpec, basis: CostBasis) -> float:
    """Return the most that the gradients of one update can cost."""
    return worst_calls_usd(calls_per_update(spec), basis)


def calls_lines(
    durations_s: Sequence[float], num_requests: int, basis: CostBasis, *, round_index: int
) -> tuple[LedgerLine, ...]:
    """Return the bill of a round's calls, as far as there is anything to pay."""
    prices = basis.prices
    gb_s = sum(lambda_gb_seconds(each, basis.gradient_memory_mb) for each in durations_s)
    usd_per_gb_s, usd_per_request = prices.lambda_usd_per_gb_s, prices.lambda_usd_per_request
    lines = (
        LedgerLine(
            round=round_index,
            attempt=0,
            item="gradient_duration",
            quantity=gb_s,
            unit="GB-second",
            unit_price_usd=usd_per_gb_s,
            amount_usd=gb_s * usd_per_gb_s,
        ),
        LedgerLine(
            round=round_index,
            attempt=0,
            item="gradient_requests",
            quantity=float(num_requests),
            unit="request",
            unit_price_usd=usd_per_request,
            amount_usd=num_requests * usd_per_request,
        ),
    )
    return tuple(line for line in lines if line.quantity > 0)
