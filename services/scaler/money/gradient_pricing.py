"""Possible and actual cost of calls of learner functions.

A job's rounds are planned with room for the worst case of an update's calls: each runs twice to the
time-out, from a cold start. That much is reserved with the first call of a round, before any is
launched, and replaced by the bill when the round's calls have ended.
"""

from collections.abc import Sequence

from pydantic import ValidationError

from services.scaler.money.ledger import ledger_lines
from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.presets import resolve
from shared.money.costs import EXECUTIONS_PER_TASK, CostBasis, lambda_gb_seconds
from shared.money.round_costs import BillItem


def calls_per_update(spec: JobSpec) -> int:
    """Return the number of function calls in an update of a job; 0 without functions."""
    if not spec.learns_on_functions:
        return 0
    try:
        values = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    except ValidationError:
        return 0  # refused for that, before anything is priced with it
    passes: int = getattr(values, "num_epochs", 1)
    return passes * spec.learner_functions.slices


def worst_calls_usd(num_calls: int, basis: CostBasis) -> float:
    """Return the worst-case cost of this many calls."""
    prices = basis.prices
    gb_s = lambda_gb_seconds(
        basis.cold_start_s + basis.gradient_timeout_s, basis.gradient_memory_mb
    )
    each_usd = gb_s * prices.lambda_usd_per_gb_s + prices.lambda_usd_per_request
    return num_calls * EXECUTIONS_PER_TASK * each_usd


def worst_update_usd(spec: JobSpec, basis: CostBasis) -> float:
    """Return the worst-case cost of the gradients of one update."""
    return worst_calls_usd(calls_per_update(spec), basis)


def calls_lines(
    durations_s: Sequence[float], num_requests: int, basis: CostBasis, *, round_index: int
) -> tuple[LedgerLine, ...]:
    """Return the lines of a round's calls, without empty ones."""
    prices = basis.prices
    gb_s = sum(lambda_gb_seconds(each, basis.gradient_memory_mb) for each in durations_s)
    items = (
        BillItem("gradient_duration", gb_s, "GB-second", prices.lambda_usd_per_gb_s),
        BillItem("gradient_requests", num_requests, "request", prices.lambda_usd_per_request),
    )
    return ledger_lines(items, round_index=round_index, attempt=0)
