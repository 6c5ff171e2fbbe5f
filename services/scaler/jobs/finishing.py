"""The end of a job: the learner's final report, the rest of the bill, and the bill itself."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord, RoundEntry
from services.scaler.jobs.changes import JobChanges
from services.scaler.launching.launches import Launches
from services.scaler.money.accounting import Spending
from services.scaler.money.ledger import LedgerTally, assumptions
from services.scaler.refusals import found
from services.scaler.rounds.record import actor_trouble, evaluated
from shared.contracts.billing import JobCost, ServerfulCost
from shared.contracts.jobs import Job
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.leases import FinishRequest
from shared.contracts.rounds import RoundPage, RoundRecord
from shared.money.costs import CostBasis
from shared.money.one_server import best_server
from shared.money.round_costs import PAPER_SERVERS, own_serverful_cost, serverful_cost

_LOG = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class FinishService:
    """Handles the learner's final report, and shows rounds and bills."""

    book: Book
    launches: Launches
    changes: JobChanges
    now: Callable[[], float]
    spending: Spending
    learners: Mapping[LearnerKind, str]
    """The billed machine of each kind."""
    finish_wait_s: float

    def __post_init__(self) -> None:
        self._tally = LedgerTally(self.book)

    async def finish(self, job_id: str, request: FinishRequest) -> Job:
        """End a job. Harmless to repeat.

        Raises:
            ApiError: There is no such job, or the lease is lost.
        """
        # The last episodes reach the learner slightly before their replies reach the scaler.
        await self.launches.flights.wait_landed(job_id, timeout_s=self.finish_wait_s)

        def decide(record: JobRecord) -> Change | None:
            if record.finished_lease_id == request.lease_id:
                return None
            record.held_by(request.lease_id)
            return self._finished(record, request)

        record = found(await self.changes.change(job_id, decide), "job", job_id)
        _LOG.info(
            "job finished",
            extra={"job": job_id, "status": record.job.status, "why": record.job.stop_reason},
        )
        return record.job

    def cost(self, job_id: str, *, first: int, limit: int) -> JobCost:
        """Return a job's bill so far, with one page of its lines."""
        record = found(self.book.job(job_id), "job", job_id)
        spending, spec, kind = self.spending, record.job.spec, record.job.learner
        basis = spending.basis.with_learner(kind, spec.learner_task)
        sums = self._tally.of(job_id)
        lines = tuple(self.book.lines(job_id, skip=first, limit=limit)) if limit else ()
        upto = first + len(lines)
        serverful = self._serverful(record, basis)
        return JobCost(
            job_id=job_id,
            settled_usd=record.settled_usd,
            reserved_usd=max(record.reserved_usd, spending.owed_usd(record, self.now())),
            by_item=dict(sums.by_item),
            lines=lines,
            next_cursor=str(upto) if upto < sums.num_lines else None,
            price_table=basis.prices.name,
            projected_wall_s=record.projected_wall_s,
            serverful=serverful,
            best_server=best_server(record.server_wall_s, basis.prices),
            assumptions=assumptions(
                basis,
                spending.clock,
                self._learner(record.job),
                warm=spec.warm or "provisioned",
                open_rounds=min(spec.open_rounds, spec.stop.max_rounds),
                compared=bool(serverful),
            ),
        )

    def _learner(self, job: Job) -> str:
        """Return what a job's learner is billed as."""
        kind = self.learners[job.learner]
        return job.spec.learner_task.described(kind) if job.learner == "cpu" else kind

    def _serverful(self, record: JobRecord, basis: CostBasis) -> tuple[ServerfulCost, ...]:
        """Return the comparison with the paper's servers, and with the job's own learner.

        Servers without a price are left out.
        """
        wall_s, learner = record.serverful_wall_s, self._learner(record.job)
        papers = PAPER_SERVERS if PAPER_SERVERS.priced_in(basis.prices) else None
        costs = [
            None if papers is None else serverful_cost(wall_s, papers, basis.prices),
            None
            if record.job.learner == "external"
            else own_serverful_cost(wall_s, learner, basis),
        ]
        return tuple(dict.fromkeys(cost for cost in costs if cost is not None))

    def rounds(self, job_id: str, *, first: int, limit: int) -> RoundPage:
        """Return rounds in order, and separately the plans that ended the job."""
        record = found(self.book.job(job_id), "job", job_id)
        entries = self.book.rounds(job_id, first=first, limit=limit + 1)
        costs = self._tally.of(job_id).by_round
        reserved: defaultdict[int, float] = defaultdict(float)
        for each in record.open_bills:
            reserved[each.round] += each.reserved_usd
        rounds: list[RoundRecord] = []
        endings: list[RoundRecord] = []
        for entry in entries[:limit]:
            # A plan that ended the job at its first attempt is not a round.
            of_its_kind = endings if entry.attempts[0].plan.stop is not None else rounds
            of_its_kind.append(
                self._shown(entry, costs.get(entry.round, 0.0), reserved[entry.round])
            )
        return RoundPage(
            rounds=tuple(rounds),
            endings=tuple(endings),
            next_cursor=str(entries[limit].round) if len(entries) > limit else None,
        )

    def _finished(self, record: JobRecord, request: FinishRequest) -> Change:
        now = self.now()
        record, lines = self.spending.end_job(record, now)
        job = record.job.model_copy(
            update={
                "status": request.status,
                "stop_reason": request.stop_reason,
                "error": request.error,
                "fails_again": request.fails_again,
                "finished_at": now,
                "progress": evaluated(record.job.progress, request.final_evaluation),
            }
        )
        ended = {
            "job": job,
            "lease": None,
            "finished_lease_id": request.lease_id,
            "final_evaluation": request.final_evaluation,
        }
        return Change(record=record.model_copy(update=ended), lines=lines)

    def _shown(self, entry: RoundEntry, cost_usd: float, reserved_usd: float) -> RoundRecord:
        newest, so_far = entry.last, self.launches.so_far
        launches = [attempt.launches or so_far(attempt.key) for attempt in entry.attempts]
        return RoundRecord(
            plan=newest.plan,
            result=entry.result,
            cost_usd=cost_usd,
            reserved_usd=reserved_usd,
            launches=newest.launches,
            trouble=actor_trouble([counts for counts in launches if counts is not None]),
        )
