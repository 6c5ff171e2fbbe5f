"""A job's running account: what is reserved, what is final, up to when time is billed.

Pure steps from one `JobRecord` to the next; whoever calls them writes the result with the ledger
lines in one change. `Spending` prices the time in which nobody asks for a plan: a learner that
hangs, or is replaced again and again, keeps learner, cache and warm environments busy all the same.
"""

import math
from dataclasses import dataclass, replace

from services.scaler.capacity.kept_warm import kept_warm
from services.scaler.money.ledger import Clock, Settlement, executions_usd, settle, settle_held
from services.scaler.store.base import AttemptKey, JobRecord, LaunchOutcome, OpenAttempt
from shared.contracts.billing import LedgerLine
from shared.money.costs import CostBasis


def warm_at_most(basis: CostBasis, num_environments: int) -> CostBasis:
    """Return the deployment's basis for a job that keeps no more than so many warm."""
    return replace(basis, provisioned=min(basis.provisioned, num_environments))


def job_basis(basis: CostBasis, record: JobRecord) -> CostBasis:
    """Return the deployment's basis for one job, as it is now."""
    return warm_at_most(basis, kept_warm(record))


def attempt_basis(basis: CostBasis, record: JobRecord, attempt: OpenAttempt) -> CostBasis:
    """Return the deployment's basis for one of a job's attempts, as it was planned."""
    kept = record.job.spec.actors.max if attempt.kept_warm is None else attempt.kept_warm
    return warm_at_most(basis, kept)


def clock_s(record: JobRecord, now: float, clock: Clock) -> float:
    """Return the time on the clock that bills a job."""
    return record.projected_wall_s if clock == "projected" else now


def begin_holding(record: JobRecord, now: float, clock: Clock) -> JobRecord:
    """Note that a learner took the job, after an earlier one may have been lost with it.

    From here on the job pays for the environments that are kept warm for it.
    """
    # A lease may seem to end later than now: it is of before the clock was set back.
    carried = stop_holding(record, min(now, record.lease.expires_at) if record.lease else now)
    updated: dict[str, object] = {"accounted_until": now}
    if carried.warm is None:
        updated |= {"warm": kept_warm(carried), "warm_since": clock_s(carried, now, clock)}
    return carried.model_copy(update=updated)


def stop_holding(record: JobRecord, until: float) -> JobRecord:
    """Note that the learner let go of the job at `until`."""
    if record.accounted_until is None:
        return record
    held_s = max(0.0, until - record.accounted_until)
    return record.model_copy(
        update={"accounted_until": None, "held_carry_s": record.held_carry_s + held_s}
    )


def unbilled_s(record: JobRecord, now: float) -> float:
    """Return for how long learners have held the job that is not billed yet.

    A lease that ran out counts to its end.
    """
    if record.accounted_until is None:
        return record.held_carry_s
    until = now if record.lease is None else min(now, record.lease.expires_at)
    return record.held_carry_s + max(0.0, until - record.accounted_until)


def end_round(
    record: JobRecord,
    *,
    learner_s: float,
    now: float,
    basis: CostBasis,
    clock: Clock,
    overhead_s: float = 0.0,
    through: int | None = None,
) -> tuple[JobRecord, tuple[LedgerLine, ...]]:
    """Close the time of the attempts under way; time outside any attempt is billed at once.

    Every second is billed to one attempt: to the oldest that ends. While rounds are under way and
    none of them ends, time is carried on to the next that does.

    Args:
        record: The job.
        learner_s: The learner's own time in the attempt that ends.
        now: Unix seconds.
        basis: Prices and sizes of the deployment.
        clock: What bills time-based items.
        overhead_s: What opening that attempt's round took the learner.
        through: Newest round that ends; None ends all.
    """
    since = now if record.accounted_until is None else record.accounted_until
    held_s = record.held_carry_s + max(0.0, now - since)
    timed = {"accounted_until": now, "held_carry_s": 0.0}
    waiting = [a for a in record.open_attempts if a.held_s is None]
    ending = [a for a in waiting if through is None or a.round <= through]
    if ending:
        closed = tuple(
            a.model_copy(
                update={
                    "learner_s": learner_s,
                    "overhead_s": overhead_s,
                    "held_s": held_s if a is ending[0] else 0.0,
                }
            )
            if any(a is ended for ended in ending)
            else a
            for a in record.open_attempts
        )
        return record.model_copy(update={**timed, "open_attempts": closed}), ()
    if waiting:
        return record.model_copy(update={**timed, "held_carry_s": held_s}), ()
    record = record.model_copy(update=timed)
    if clock == "projected":
        return record, ()
    lines = settle_held(record.job.progress.rounds, held_s, job_basis(basis, record))
    return _booked(record, lines), lines


def end_job(
    record: JobRecord, *, now: float, basis: CostBasis, clock: Clock
) -> tuple[JobRecord, tuple[LedgerLine, ...]]:
    """Close a job's account: nobody trains it any more, what is known is billed.

    After its last plan a learner learns nothing: its time is waiting only.
    """
    record, held = end_round(record, learner_s=0.0, now=now, basis=basis, clock=clock)
    record, settled = settle_ready(record, basis, clock)
    started = now if record.wall_started_at is None else record.wall_started_at
    record = record.model_copy(
        update={
            "accounted_until": None,
            "wall_used_s": record.wall_used_s + max(0.0, now - started),
            "wall_started_at": None,
            "warm": None,
            "environments": 0,
        }
    )
    return record, (*held, *settled)


def land(record: JobRecord, key: AttemptKey, outcome: LaunchOutcome) -> JobRecord:
    """Note the outcome of a launch; without effect when it is known already."""
    attempts = tuple(
        a.model_copy(update={"outcome": outcome})
        if a.outcome is None and (record.job.job_id, a.round, a.attempt, a.lease_id) == key
        else a
        for a in record.open_attempts
    )
    return record.model_copy(update={"open_attempts": attempts})


def settle_ready(
    record: JobRecord, basis: CostBasis, clock: Clock
) -> tuple[JobRecord, tuple[LedgerLine, ...]]:
    """Replace the reservation of every attempt about which all is known by its bill."""
    open_attempts: list[OpenAttempt] = []
    settled: list[Settlement] = []
    for attempt in record.open_attempts:
        settlement = settle(attempt, attempt_basis(basis, record, attempt), clock)
        if settlement is None:
            open_attempts.append(attempt)
        else:
            settled.append(settlement)
    lines = tuple(line for settlement in settled for line in settlement.lines)
    projected_s = record.projected_wall_s + sum(s.projected_s for s in settled)
    record = record.model_copy(
        update={
            "open_attempts": tuple(open_attempts),
            "projected_wall_s": projected_s,
            "serverful_wall_s": record.serverful_wall_s + sum(s.serverful_s for s in settled),
        }
    )
    return _booked(record, lines), lines


def _booked(record: JobRecord, lines: tuple[LedgerLine, ...]) -> JobRecord:
    settled_usd = record.settled_usd + sum(line.amount_usd for line in lines)
    return record.model_copy(
        update={
            "settled_usd": settled_usd,
            "num_lines": record.num_lines + len(lines),
            "job": record.job.model_copy(update={"spent_usd": settled_usd}),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Prices of the time that passes; where a projection is billed, no time costs anything."""

    basis: CostBasis
    clock: Clock

    def owed_usd(self, record: JobRecord, now: float) -> float:
        """Return what a job has not been billed yet, of time and of actors."""
        if self.clock == "projected":
            return 0.0
        usd_per_s = job_basis(self.basis, record).usd_per_s
        return self._open_usd(record) + unbilled_s(record, now) * usd_per_s

    def exhausted_at(self, record: JobRecord) -> float:
        """Return from when on a job has passed its budget, if nothing else happens to it.

        A round's reservation has room for its deadline and the learner's own time: within those it
        is never so.

        Returns:
            Unix seconds; infinity if it will not, or not before its lease runs out.
        """
        usd_per_s = job_basis(self.basis, record).usd_per_s
        if self.clock == "projected" or not usd_per_s:
            return math.inf
        room_usd = record.job.spec.stop.budget_usd - record.settled_usd
        room_usd -= self._open_usd(record)
        room_s = room_usd / usd_per_s - record.held_carry_s
        if record.accounted_until is None:
            return math.inf if room_s > 0 else -math.inf
        exhausted_at = record.accounted_until + room_s
        ends_at = math.inf if record.lease is None else record.lease.expires_at
        return exhausted_at if exhausted_at <= ends_at else math.inf

    def _open_usd(self, record: JobRecord) -> float:
        """Return what open attempts cost, but for time that is not closed yet."""
        usd = 0.0
        for attempt in record.open_attempts:
            basis = attempt_basis(self.basis, record, attempt)
            usd += executions_usd(attempt, basis, self.clock)
            usd += (attempt.held_s or 0.0) * basis.usd_per_s
        return usd
