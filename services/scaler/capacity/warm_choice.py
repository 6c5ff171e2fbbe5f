"""Deciding a round together with how many environments its job keeps warm.

Both have to fit the budget. More are kept than before only where that costs the round nothing, and
fewer than usual only where there would be no round otherwise, or no final evaluation.
"""

from collections.abc import Callable
from dataclasses import replace

from services.scaler.capacity.kept_warm import keeping, warm_numbers
from services.scaler.money.accounting import job_basis
from services.scaler.rounds.decision import Decision, RoundContext
from services.scaler.store.base import JobRecord


def decided(
    record: JobRecord,
    context: RoundContext,
    decide: Callable[[RoundContext], Decision],
    *,
    at: float,
) -> tuple[JobRecord, Decision]:
    """Return the job's record with what it keeps warm from this round on, and the decision.

    Args:
        record: The job.
        context: What is decided about; prices and sizes are the deployment's.
        decide: Decides about a context.
        at: Seconds on the clock that bills the job.
    """
    basis = context.pricing.basis

    def with_warm(num: int) -> tuple[JobRecord, Decision]:
        kept = keeping(record, num, at=at, provisioned=basis.provisioned)
        pricing = replace(context.pricing, basis=job_basis(basis, kept))
        return kept, decide(replace(context, pricing=pricing))

    numbers = warm_numbers(record, context.conditions.round_index, at=at)
    usual = with_warm(numbers.usual)
    if numbers.more is not None:
        more = with_warm(numbers.more)
        if not more[1].stop and _size(more[1]) == _size(usual[1]):
            return more
    if usual[1].stop != "budget":
        return usual
    tried = (usual, *map(with_warm, numbers.fewer))
    going_on = (each for each in tried if not each[1].stop)
    return next(going_on, max(tried, key=lambda each: each[1].num_evaluations))


def _size(decision: Decision) -> tuple[int, int]:
    return decision.num_actors, decision.num_evaluations
