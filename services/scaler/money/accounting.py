"""A job's spending: reserved money, final bills, and the end of billed time.

The caller writes a new `JobRecord` with its ledger lines in one change. Time without plans has a
price, too: a learner that hangs, or is replaced repeatedly, still occupies learner, cache and warm
environments.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from services.scaler.book.attempts import OpenAttempt
from services.scaler.book.records import JobRecord
from services.scaler.money.account import (
    NO_TIMES,
    Billed,
    LearnerTimes,
    book_lines,
    closed_attempts,
    lease_end,
    stop_holding,
    unbilled_s,
    warm_at_most,
)
from services.scaler.money.kept_warm import kept_by_pings, kept_warm
from services.scaler.money.ledger import (
    Clock,
    Settlement,
    cold_ping_lines,
    executions_usd,
    settle,
    settle_held,
)
from services.scaler.money.round_means import with_round
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import Job
from shared.money.costs import CostBasis, projected_duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A job's bill; in a projection, time between rounds costs nothing."""

    basis: CostBasis
    """Prices and sizes of the deployment."""
    clock: Clock
    """The clock for time-based items."""
    num_held: Callable[[], int] = field(default=lambda: 1)
    """Number of leased jobs: they share the price of cache and scaler equally. Budgets assume that
    each job pays the whole price.
    """

    def clock_s(self, record: JobRecord, now: float) -> float:
        """Return the time on the clock that bills a job."""
        return record.projected_wall_s if self.clock == "projected" else now

    def execution_s(self, measured_s: float, *, memory_mb: int, timeout_s: float) -> float:
        """Return the billed duration of an execution that took this long here."""
        if self.clock == "wall":
            return measured_s
        return projected_duration_s(measured_s, memory_mb=memory_mb, timeout_s=timeout_s)

    def begin_holding(self, record: JobRecord, now: float) -> JobRecord:
        """Note that a learner took the job, possibly after a lost one.

        From now on the job pays for its warm environments.
        """
        carried = stop_holding(record, lease_end(record, now))
        updated: dict[str, object] = {"accounted_until": now}
        if carried.warm is None:
            updated |= {"warm": kept_warm(carried), "warm_since": self.clock_s(carried, now)}
        return carried.model_copy(update=updated)

    def end_round(
        self,
        record: JobRecord,
        now: float,
        times: LearnerTimes,
        *,
        through: int | None = None,
    ) -> Billed:
        """Close the time of the open attempts, and bill the complete ones.

        Every second is billed to one attempt: the oldest that ends. While no open round ends, time
        is carried over to the next end. Time outside any attempt is billed at once.

        Args:
            record: The job.
            now: Unix seconds.
            times: Of the round that ends.
            through: Newest round that ends; None ends all.
        """
        held_s = stop_holding(record, now).held_carry_s
        waiting = [a for a in record.open_attempts if a.held_s is None]
        ending = [a for a in waiting if through is None or a.round <= through]
        carried_s = held_s if waiting and not ending else 0.0
        record = record.model_copy(update={"accounted_until": now, "held_carry_s": carried_s})
        held: tuple[LedgerLine, ...] = ()
        if ending:
            attempts = closed_attempts(record.open_attempts, ending, held_s=held_s, times=times)
            record = record.model_copy(update={"open_attempts": attempts})
        elif not waiting and self.clock == "wall":
            held = settle_held(
                record.job.progress.rounds, held_s, self._shared(self._job_basis(record))
            )
            record = book_lines(record, held)
        record, settled = self.settle_ready(record)
        return record, (*held, *settled)

    def end_job(self, record: JobRecord, now: float) -> Billed:
        """Close a job's account: it has no learner, and known costs are billed.

        After its last plan a learner only waits.
        """
        record, lines = self.end_round(record, now, NO_TIMES)
        record, pings = self._settle_pings(record, record.job.progress.rounds)
        started = now if record.wall_started_at is None else record.wall_started_at
        closed = {
            "accounted_until": None,
            "wall_used_s": record.wall_used_s + max(0.0, now - started),
            "wall_started_at": None,
            "warm": None,
            "environments": 0,
            "closing_usd": 0.0,
        }
        return record.model_copy(update=closed), (*lines, *pings)

    def _settle_pings(self, record: JobRecord, round_index: int) -> Billed:
        """Bill the environments that pings started for the job, in a line of this round."""
        lines = cold_ping_lines(round_index, record.cold_pings, self._job_basis(record))
        return book_lines(record.model_copy(update={"cold_pings": 0}), lines), lines

    def settle_ready(self, record: JobRecord) -> Billed:
        """Replace the reservation of every complete attempt by its bill."""
        bills: list[Settlement] = []
        waiting: list[OpenAttempt] = []
        pings: tuple[LedgerLine, ...] = ()
        costs, use, on_servers = record.costs, record.warm_use, Counter(record.server_wall_s)
        for attempt in record.open_attempts:
            bill = settle(attempt, self._shared(self._attempt_basis(record, attempt)), self.clock)
            if bill is None:
                waiting.append(attempt)
                continue
            costs = with_round(costs, attempt, bill)
            on_servers.update(bill.server_s)
            use = use.after(
                bill.billed_s,
                bill.busy_gb_s,
                reused=bill.lost is not None,
                lost=bill.lost or 0,
                started=record.cold_pings,
            )
            if not bills:
                record, pings = self._settle_pings(record, attempt.round)
            bills.append(bill)
        lines = tuple(line for bill in bills for line in bill.lines)
        updated = {
            "warm_use": use,
            "open_attempts": tuple(waiting),
            "costs": costs,
            "projected_wall_s": record.projected_wall_s + sum(bill.projected_s for bill in bills),
            "serverful_wall_s": record.serverful_wall_s + sum(bill.serverful_s for bill in bills),
            "server_wall_s": dict(on_servers),
        }
        return book_lines(record.model_copy(update=updated), lines), (*lines, *pings)

    def claimed_usd(self, record: JobRecord, now: float) -> float:
        """Return the amount to which a job's budget is committed.

        Invariant, for rollouts and gradients alike: committed + closing <= budget. Plans and
        gradients are launched only if it still holds with them, and a learner is told to end before
        it would fail.
        """
        return self.committed_usd(record, now) + record.closing_usd

    def committed_usd(self, record: JobRecord, now: float) -> float:
        """Return a job's bill plus the larger of its reservations and its debts so far."""
        return record.settled_usd + max(record.reserved_usd, self.owed_usd(record, now))

    def owed_usd(self, record: JobRecord, now: float) -> float:
        """Return a job's unbilled costs of time, actors and pings."""
        if self.clock == "projected":
            return 0.0
        usd_per_s = self._job_basis(record).usd_per_s
        return self._open_usd(record) + unbilled_s(record, now) * usd_per_s

    def exhausted_at(self, record: JobRecord, now: float) -> float:
        """Return when only the cost of a job's end is left, so that it is told to end.

        That never happens within a round's reservation, which covers its deadline and the learner's
        time.

        Returns:
            Unix seconds, as `spent_at`.
        """
        return self._used_up_at(record, now, left_usd=record.closing_usd)

    def spent_at(self, record: JobRecord, now: float) -> float:
        """Return when a job's budget will be used up without further events.

        Returns:
            Unix seconds; infinity if its lease expires before.
        """
        return self._used_up_at(record, now, left_usd=0.0)

    def _used_up_at(self, record: JobRecord, now: float, *, left_usd: float) -> float:
        usd_per_s = self._job_basis(record).usd_per_s
        if self.clock == "projected" or not usd_per_s:
            return math.inf
        room_usd = record.job.spec.stop.budget_usd - record.settled_usd - left_usd
        room_usd -= self._open_usd(record)
        room_s = room_usd / usd_per_s - record.held_carry_s
        if record.accounted_until is None:
            return math.inf if room_s > 0 else -math.inf
        used_up_at = record.accounted_until + room_s
        ran_out = lease_end(record, now) < now
        return math.inf if ran_out and used_up_at > lease_end(record, now) else used_up_at

    def _open_usd(self, record: JobRecord) -> float:
        """Return the cost of open attempts, except for time that is not closed yet."""
        usd = sum(gradients.reserved_usd for gradients in record.open_gradients)
        usd += record.cold_pings * self._job_basis(record).cold_ping_usd
        for attempt in record.open_attempts:
            basis = self._attempt_basis(record, attempt)
            usd += executions_usd(attempt, basis, self.clock)
            usd += (attempt.held_s or 0.0) * basis.usd_per_s
        return usd

    def _job_basis(self, record: JobRecord) -> CostBasis:
        """Return one job's current basis."""
        basis = self._learner_basis(record.job)
        return warm_at_most(basis, kept_warm(record), pinged=kept_by_pings(record))

    def _attempt_basis(self, record: JobRecord, attempt: OpenAttempt) -> CostBasis:
        """Return the basis for one of a job's attempts, as it was planned."""
        kept = record.job.spec.actors.max if attempt.kept_warm is None else attempt.kept_warm
        basis = self._learner_basis(record.job)
        return warm_at_most(basis, kept, pinged=attempt.pinged)

    def _shared(self, basis: CostBasis) -> CostBasis:
        """Return the basis with a job's share of common costs; a projection has one job."""
        parts = max(1, self.num_held()) if self.clock == "wall" else 1
        return replace(
            basis,
            cache_usd_per_s=basis.cache_usd_per_s / parts,
            scaler_usd_per_s=basis.scaler_usd_per_s / parts,
        )

    def _learner_basis(self, job: Job) -> CostBasis:
        return self.basis.with_learner(job.learner, job.spec.learner_task)
