"""Setting money and environments aside for a round, in the change that makes its plan."""

from services.scaler.capacity.kept_warm import kept_warm
from services.scaler.launching.launches import LaunchOrder
from services.scaler.money.ledger import NOTHING_LAUNCHED
from services.scaler.rounds.decision import Decision
from services.scaler.store.base import JobRecord, OpenAttempt


def reserved(
    record: JobRecord,
    order: LaunchOrder,
    decision: Decision,
    now: float,
    *,
    busy: int,
    ready: int,
) -> JobRecord:
    """Return the job's record with the round's attempt open and its worst case committed.

    Args:
        record: The job.
        order: What will be launched.
        decision: What it may cost and how long the learner waits.
        now: Unix seconds.
        busy: Environments that the job's other open rounds keep to themselves.
        ready: Provisioned environments that are ready.
    """
    started = now if record.wall_started_at is None else record.wall_started_at
    updated = {"reported_lines": record.num_lines, "wall_started_at": started}
    if decision.awaits_others:
        # Nothing is launched, and the time until the next request is that of an open round.
        return record.model_copy(update=updated)
    kept = kept_warm(record)
    # Those that are ready may be more for another job's sake, or because some are still let go of.
    warm = min(max(0, min(ready, kept) - busy), order.size)
    spec = record.job.spec
    attempt = OpenAttempt(
        round=order.plan.round,
        attempt=order.plan.attempt,
        lease_id=order.lease_id,
        num_invocations=order.size,
        reserved_usd=decision.reserve_usd,
        warm=warm,
        kept_warm=kept,
        cold=max(0, order.size - max(warm, record.environments - busy)),
        deadline_s=decision.deadline_s,
        open_rounds=1 if decision.stop else min(spec.open_rounds, spec.stop.max_rounds),
        outcome=None if order.size else NOTHING_LAUNCHED,
    )
    return record.model_copy(
        update={
            **updated,
            "open_attempts": (*record.open_attempts, attempt),
            "environments": max(record.environments, busy + order.size),
        }
    )
