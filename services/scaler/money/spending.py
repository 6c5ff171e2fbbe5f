"""What a job costs while nobody asks for a plan, and when its money is used up by that.

Every round is priced before it is launched, so a job that asks for one round after another keeps to
its budget. One that does not ask, because its learner hangs, or is lost and replaced again and
again before its round is over, keeps learner, cache and warm environments busy all the same.
"""

import math
from dataclasses import dataclass

from services.scaler.money.accounting import attempt_basis, job_basis, unbilled_s
from services.scaler.money.ledger import Clock, executions_usd
from services.scaler.store.base import JobRecord
from shared.money.costs import CostBasis


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
