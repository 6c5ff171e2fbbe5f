"""Leases: which learner trains which job.

A learner claims a job and renews its lease. A silent learner loses the job to the next one that
asks; calls under the old lease are then refused.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass

from services.scaler.book.book import Book
from services.scaler.book.records import Change, Decide, JobRecord, LeaseRecord
from services.scaler.jobs.ending import ended
from services.scaler.money.account import stop_holding
from services.scaler.money.accounting import Spending
from services.scaler.refusals import found
from shared.contracts.jobs import JobStatus, StopReason
from shared.contracts.learner_kind import MachineKind
from shared.contracts.leases import Lease, LeaseState, hash_of_lease

_LOG = logging.getLogger(__name__)
SWITCHED_OFF_AFTER_S = 600.0
"""Without a scaler, the dead-man switch turns learner and warm environments off after this time."""
MOST_LOST = 5
"""Learners that a job may lose in a row before a round is done."""
_LEASABLE: tuple[JobStatus, ...] = ("queued", "running", "stopping")
_HELD: tuple[JobStatus, ...] = ("running", "stopping")


@dataclass(eq=False)
class LeaseService:
    """Hands out, renews and takes back leases."""

    book: Book
    _: KW_ONLY
    ttl_s: float
    heartbeat_every_s: float
    now: Callable[[], float]
    spending: Spending
    change: Callable[[str, Decide], Awaitable[JobRecord | None]]
    """Changes a job that may end by it; see `JobChanges`."""
    cache_url: str | None = None
    """The cache's address for clients of external jobs."""

    async def claim(
        self, learner_id: str, kind: MachineKind | None = None, job_id: str | None = None
    ) -> Lease | None:
        """Lease the oldest job of a kind, or of any, without a learner; or return None.

        External jobs are leased by id, and jobs with their own learner by id and kind.

        A learner that asks for work has none. A lease in its name belongs to an earlier process or
        a lost answer, so that job is free at once.
        """
        for candidate in await self._candidates(kind, job_id):
            if not self._free(candidate, learner_id):
                continue
            lease_id = f"lease-{secrets.token_hex(8)}"
            record = await self._take(candidate.job.job_id, lease_id, learner_id)
            if record is not None:
                job = record.job
                _LOG.info(
                    "job leased",
                    extra={
                        "job": job.job_id,
                        "lease": hash_of_lease(lease_id),
                        "learner": learner_id,
                    },
                )
                return Lease(
                    lease_id=lease_id,
                    job=job,
                    expires_in_s=self.ttl_s,
                    heartbeat_every_s=self.heartbeat_every_s,
                    epoch=record.num_leases,
                    cache_url=self.cache_url if job.learner == "external" else None,
                )
        return None

    async def _candidates(self, kind: MachineKind | None, job_id: str | None) -> list[JobRecord]:
        """Return the candidate jobs of a request, oldest first."""
        if job_id is not None:
            record = await self.book.find(job_id)
            learner = "external" if kind is None else kind
            return [record] if record is not None and record.job.learner == learner else []
        await self.book.catch_up()
        return [
            record
            for record in self.book.with_status(_LEASABLE)
            if record.job.learner != "external" and kind in (None, record.job.learner)
        ]

    async def heartbeat(self, lease_id: str) -> LeaseState:
        """Renew a lease and return whether the job should end.

        Raises:
            ApiError: The lease is lost.
        """

        def decide(record: JobRecord) -> Change:
            held, now = record.held_by(lease_id), self.now()
            renewed = held.model_copy(update={"expires_at": now + self.ttl_s})
            # This is final: the next plan has to say it, too.
            exhausted = record.exhausted or self.spending.exhausted_at(record, now) <= now
            updated = {"lease": renewed, "exhausted": exhausted}
            return Change(record=record.model_copy(update=updated))

        record = found(self.book.job_of_lease(lease_id), "lease", lease_id)
        job_id = record.job.job_id
        changed = found(await self.book.change(job_id, decide), "lease", lease_id)
        stop: StopReason | None = "budget" if changed.exhausted else None
        if changed.job.status == "stopping":
            stop = "user"
        return LeaseState(expires_in_s=self.ttl_s, stop=stop)

    async def give_up(self, lease_id: str) -> None:
        """Return a leased job to the queue. Harmless to repeat."""

        def decide(record: JobRecord) -> Change | None:
            if record.lease is None or record.lease.lease_id != lease_id:
                return None
            freed = stop_holding(record, self.now())
            status = "queued" if record.job.status == "running" else record.job.status
            # Its client gets a new term to return, or its next learner to start.
            updated = {"lease": None, "queued_at": self.now()}
            return Change(record=freed.with_job(status=status).model_copy(update=updated))

        record = self.book.job_of_lease(lease_id)
        if record is not None:
            await self.book.change(record.job.job_id, decide)
            _LOG.info(
                "lease given up", extra={"job": record.job.job_id, "lease": hash_of_lease(lease_id)}
            )

    def next_expiry_s(self) -> float | None:
        """Return the seconds until the next lease expires; None without leases."""
        leases = [r.lease for r in self.book.with_status(_HELD) if r.lease is not None]
        if not leases:
            return None
        return max(0.0, min(lease.expires_at for lease in leases) - self.now())

    async def extend_all(self) -> None:
        """Give every learner a full term: this scaler was away."""
        for held in self.book.with_status(_HELD):

            def decide(record: JobRecord) -> Change | None:
                if record.lease is None:
                    return None
                now = self.now()
                if record.lease.expires_at + SWITCHED_OFF_AFTER_S < now:
                    # Everything was off by then: that time is not billed.
                    until = record.lease.expires_at + SWITCHED_OFF_AFTER_S
                    record = stop_holding(record, until).model_copy(update={"accounted_until": now})
                assert record.lease is not None
                renewed = record.lease.model_copy(update={"expires_at": now + self.ttl_s})
                return Change(record=record.model_copy(update={"lease": renewed}))

            await self.book.change(held.job.job_id, decide)

    def _free(self, record: JobRecord, learner_id: str) -> bool:
        if record.job.status not in _LEASABLE:
            return False
        if record.lease is None or record.lease.learner_id == learner_id:
            return True
        left_s = record.lease.expires_at - self.now()
        # No term is longer. A much longer one is from before the clock was set back; a slightly
        # longer one is from a corrected clock, or another scaler's.
        return not 0 < left_s <= 2 * self.ttl_s

    async def _take(self, job_id: str, lease_id: str, learner_id: str) -> JobRecord | None:
        taken: list[str] = []

        def decide(record: JobRecord) -> Change | None:
            if not self._free(record, learner_id):
                return None
            now = self.now()
            if self.spending.exhausted_at(record, now) <= now:
                # Repeated losses of learners have used up the budget without a plan.
                return ended(record, self.spending, now, "budget")
            lost = record.lost_leases + (record.lease is not None)
            if lost >= MOST_LOST:
                # Each learner was started and paid for: a job that kills its learner does so again.
                if record.job.status == "stopping":
                    return ended(record, self.spending, now, "user")
                why = (
                    f"{lost} learners in a row took the job and were lost before a round was done; "
                    "check the learner's log, fix the cause, then resume the job"
                )
                return ended(record, self.spending, now, "error", why)
            taken.append(lease_id)
            lease = LeaseRecord(
                lease_id=lease_id, learner_id=learner_id, expires_at=now + self.ttl_s
            )
            job = record.job
            status = "running" if job.status == "queued" else job.status
            held = self.spending.begin_holding(record, now).with_job(
                status=status, started_at=job.started_at or now
            )
            updated = {
                "lease": lease,
                "num_leases": record.num_leases + 1,
                "lost_leases": lost,
                "wall_started_at": _without_wait(record, now),
            }
            return Change(record=held.model_copy(update=updated))

        record = await self.change(job_id, decide)
        return record if taken else None


def _without_wait(record: JobRecord, now: float) -> float | None:
    """Return the start of the job's time, shifted by the time without a learner."""
    begun = record.wall_started_at
    if begun is None:
        return None
    let_go_at = record.queued_at if record.lease is None else record.lease.expires_at
    return begun if let_go_at is None else begun + max(0.0, now - max(begun, let_go_at))
