"""A job's bill, beside the cost of the same rounds on servers, and the cost of each round."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.scaler.book.attempts import RoundEntry
from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.launching.launches import Launches
from services.scaler.money.accounting import Spending
from services.scaler.money.ledger import assumptions
from services.scaler.refusals import found
from services.scaler.rounds.record import actor_trouble
from shared.contracts.billing import JobCost, ServerfulCost
from shared.contracts.jobs import Job
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.rounds import RoundPage, RoundRecord
from shared.money.costs import CostBasis
from shared.money.one_server import best_server
from shared.money.round_costs import PAPER_SERVERS, own_serverful_cost, serverful_cost

_MAX_JOBS = 64
"""Jobs with cached sums; they take 100 KB for a job of 1,000 rounds."""


@dataclass(kw_only=True, eq=False)
class Bills:
    """Shows bills and rounds."""

    book: Book
    launches: Launches
    now: Callable[[], float]
    spending: Spending
    learners: Mapping[LearnerKind, str]
    """The billed machine of each kind."""

    def __post_init__(self) -> None:
        self._tally = _Tally(self.book)

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

    def _learner(self, job: Job) -> str:
        """Return what a job's learner is billed as."""
        kind = self.learners[job.learner]
        return job.spec.learner_task.described(kind) if job.learner == "cpu" else kind

    def _serverful(self, record: JobRecord, basis: CostBasis) -> tuple[ServerfulCost, ...]:
        """Return the comparison with the paper's servers, and with the job's own learner.

        Servers without a price are left out.
        """
        wall_s, prices = record.serverful_wall_s, basis.prices
        costs: list[ServerfulCost | None] = []
        if PAPER_SERVERS.priced_in(prices):
            costs.append(serverful_cost(wall_s, PAPER_SERVERS, prices))
        if record.job.learner != "external":
            costs.append(own_serverful_cost(wall_s, self._learner(record.job), basis))
        return tuple(dict.fromkeys(cost for cost in costs if cost is not None))

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


@dataclass(frozen=True, slots=True)
class _Sums:
    """A job's bill, in dollars."""

    num_lines: int = 0
    by_round: Mapping[int, float] = field(default_factory=dict)
    by_item: Mapping[str, float] = field(default_factory=dict)


class _Tally:
    """Sums of the ledgers of viewed jobs. Thread-safe: sums are immutable."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._tallies: dict[str, _Sums] = {}

    def of(self, job_id: str) -> _Sums:
        """Return the current sums of a job's ledger."""
        known = self._tallies.get(job_id, _Sums())
        lines = self._book.lines(job_id, skip=known.num_lines)
        if not lines:
            return known
        by_round, by_item = dict(known.by_round), dict(known.by_item)
        for line in lines:
            by_round[line.round] = by_round.get(line.round, 0.0) + line.amount_usd
            by_item[line.item] = by_item.get(line.item, 0.0) + line.amount_usd
        sums = _Sums(known.num_lines + len(lines), by_round, by_item)
        others = [*self._tallies.items()][1 - _MAX_JOBS :]
        self._tallies = {**dict(others), job_id: sums}  # as a whole, for those who look
        return sums
