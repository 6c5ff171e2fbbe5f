"""Steps of a job's account: pure functions from one `JobRecord` to the next, without prices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from services.scaler.book.attempts import AttemptKey, FunctionTimes, LaunchOutcome, OpenAttempt
from services.scaler.book.records import Change, JobRecord
from services.scaler.money.kept_warm import kept_by_pings
from shared.contracts.billing import LedgerLine
from shared.contracts.rounds import OwnWork, RoundResult
from shared.money.costs import CostBasis

Billed = tuple[JobRecord, tuple[LedgerLine, ...]]
"""A job after a step, and the ledger lines that belong to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerTimes:
    """Seconds that a learner spent on a round."""

    learner_s: float = 0.0
    """The learner's own time."""
    update_s: float = 0.0
    """Its update's part of that."""
    overhead_s: float = 0.0
    """For publishing the policy and requesting the round."""
    own_s: float = 0.0
    """From the plan to the last end on own cores."""
    own_work: OwnWork | None = None
    """The tasks there."""

    @classmethod
    def of(cls, result: RoundResult) -> Self:
        """Return the times that a learner reports."""
        timing, own = result.timing, result.own
        own_s = 0.0
        if own is not None:
            own_s = own.elapsed_s + (timing.evaluate_s if own.episodes else 0.0)
        return cls(
            learner_s=timing.learner_s,
            update_s=timing.update_s,
            overhead_s=timing.plan_s,
            own_s=own_s,
            own_work=own,
        )


NO_TIMES = LearnerTimes()
"""Of time in which no round ends, or in which the learner only waits."""


def warm_at_most(basis: CostBasis, num_environments: int, *, pinged: int = 0) -> CostBasis:
    """Return the deployment's basis for a job with at most this many warm environments.

    At most `pinged` others are kept by pings.
    """
    return replace(basis, provisioned=min(basis.provisioned, num_environments), pinged=pinged)


def stop_holding(record: JobRecord, until: float) -> JobRecord:
    """Note that the learner returned the job at `until`."""
    if record.accounted_until is None:
        return record
    held_s = max(0.0, until - record.accounted_until)
    return record.model_copy(
        update={"accounted_until": None, "held_carry_s": record.held_carry_s + held_s}
    )


def unbilled_s(record: JobRecord, now: float) -> float:
    """Return the unbilled time in which learners held the job.

    An expired lease counts to its end.
    """
    return stop_holding(record, lease_end(record, now)).held_carry_s


def lease_end(record: JobRecord, now: float) -> float:
    """Return the end of the learner's hold so far: its lease may have expired.

    A lease from before the clock was set back may seem to end later than now.
    """
    return now if record.lease is None else min(now, record.lease.expires_at)


def started_by_pings(record: JobRecord, *, num: int) -> Change | None:
    """Note that pings started this many environments; None if they are of no use to the job.

    The next bill includes them, because lines belong to rounds.
    """
    kept = min(num, kept_by_pings(record))
    if not kept:
        return None
    return Change(record=record.model_copy(update={"cold_pings": record.cold_pings + kept}))


def land(record: JobRecord, key: AttemptKey, outcome: LaunchOutcome) -> JobRecord:
    """Note the outcome of a launch, and its functions' durations; harmless to repeat."""
    attempts = tuple(
        a.model_copy(update={"outcome": outcome})
        if a.outcome is None and a.key(record.job.job_id) == key
        else a
        for a in record.open_attempts
    )
    step_s, call_s = outcome.counts.step_s, outcome.counts.call_overhead_s
    times = record.function_times
    if step_s is not None and call_s is not None:
        times = FunctionTimes(step_s=step_s, call_s=call_s)
    return record.model_copy(update={"open_attempts": attempts, "function_times": times})


def closed_attempts(
    attempts: Sequence[OpenAttempt],
    ending: Sequence[OpenAttempt],
    *,
    held_s: float,
    times: LearnerTimes,
) -> tuple[OpenAttempt, ...]:
    """Return attempts, those that end with their times.

    The oldest is billed all that passed. The newest has the learner's work, which was done once.
    """

    def closed(attempt: OpenAttempt) -> OpenAttempt:
        worked = times if attempt is ending[-1] else NO_TIMES
        return attempt.model_copy(
            update={
                "learner_s": worked.learner_s,
                "update_s": worked.update_s,
                "overhead_s": worked.overhead_s,
                "own_s": worked.own_s,
                "own_work": worked.own_work,
                "held_s": held_s if attempt is ending[0] else 0.0,
            }
        )

    ids = {id(attempt) for attempt in ending}
    return tuple(closed(each) if id(each) in ids else each for each in attempts)


def book_lines(record: JobRecord, lines: tuple[LedgerLine, ...]) -> JobRecord:
    """Count lines that are written with the record as spent."""
    settled_usd = record.settled_usd + sum(line.amount_usd for line in lines)
    return record.with_job(spent_usd=settled_usd).model_copy(
        update={"settled_usd": settled_usd, "num_lines": record.num_lines + len(lines)}
    )
