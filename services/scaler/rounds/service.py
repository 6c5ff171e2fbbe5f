"""Rounds: the learner's one call per update, decided once and stored.

The plan and its reserved money are written in one change. Then its actors are launched, and the
learner gets the answer. So a repeated request gets the same plan, after a lost answer or a restart
on either side. A stored plan is launched once, by the process that made it: if it is neither in
flight nor booked, it has not been launched. So a plan whose write had an unknown outcome is
launched when it is requested again.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus

from services.scaler.book.attempts import AttemptKey, LaunchOutcome, PlannedAttempt
from services.scaler.book.book import Book
from services.scaler.book.reading import UnreadableError, left_aside
from services.scaler.book.records import Change, JobRecord
from services.scaler.gradients.service import GradientService
from services.scaler.launching.launches import Launches
from services.scaler.launching.orders import LaunchOrder
from services.scaler.launching.quota import Concurrency, ConcurrencyQuota
from services.scaler.metrics import Metrics
from services.scaler.money.account import land
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing
from services.scaler.money.ledger import worst_outcome
from services.scaler.off_loop import OffLoop
from services.scaler.refusals import ApiError, found, invalid
from services.scaler.rounds.decision import RoundContext, decide_with_warm
from services.scaler.rounds.history import seen_by
from services.scaler.rounds.order import RoundsBefore, check_external, place
from services.scaler.rounds.record import (
    closed,
    evaluation_indices,
    reserved,
    round_entry,
    sample_indices,
    with_counts,
    with_result,
)
from services.scaler.rounds.rewinding import rewound
from services.scaler.scaling.registry import scaling_policy
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import Job
from shared.contracts.problem import FieldError
from shared.contracts.rounds import RoundPlan, RoundRequest
from shared.hyperparameters.search import SearchHyperparameters

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The stored plan that answers a request."""

    job: Job
    planned: PlannedAttempt
    new: bool
    """Whether it was stored just now."""
    order: LaunchOrder | None
    """The launch that it needs, if any."""


@dataclass(kw_only=True, eq=False)
class RoundService:
    """Plans rounds, and books the outcomes of their launches."""

    book: Book
    launches: Launches
    cache: TrajectoryCache
    cache_thread: OffLoop
    quota: ConcurrencyQuota
    metrics: Metrics
    warm: Callable[[], int]
    """Provisioned environments that are ready."""
    now: Callable[[], float]
    spending: Spending
    pricing: RoundPricing
    quorum_share: float
    max_attempts: int
    preview_wait_s: float
    longest_job_s: float
    on_given_again: Callable[[PlannedAttempt], None]
    """Called with a plan that was launched before, maybe by an earlier process."""
    gradients: GradientService

    def __post_init__(self) -> None:
        self._epoch = secrets.token_hex(8)
        self.launches.on_landed = self.landed

    async def plan(self, job_id: str, round_index: int, request: RoundRequest) -> RoundPlan:
        """Return the plan of a round, and launch its actors once.

        Raises:
            ApiError: There is no such job, the lease is lost, or the round is out of order.
        """
        start = time.perf_counter()
        await self.launches.flights.catch_up(job_id)
        # A wait for the cache's deletion delays only other round calls of the job.
        async with self.book.lock(f"rounds of {job_id}"):
            written = await self._written(job_id, round_index, request, None)
            while isinstance(written, range):
                await self._forget_in_cache(job_id, written)
                written = await self._written(job_id, round_index, request, written)
        if written.order is not None:
            self.launches.launch(written.order)
            self._refreshing = asyncio.ensure_future(self.quota.refresh())
        over = round_index + 1 - written.job.spec.open_rounds
        await self.gradients.close(job_id, before=over, but=request.lease_id)
        self._observe(written.planned.plan, written.order, time.perf_counter() - start)
        return self._answer(written)

    async def preview(self, job_id: str, round_index: int, request: RoundRequest) -> RoundPlan:
        """Return what `plan` would decide now; nothing is written or launched.

        It waits a moment for the last invocations of the previous round, because the decision
        depends on what they leave of the budget.

        Raises:
            ApiError: As for `plan`, or the round is over.
        """
        await self.launches.flights.wait_landed(job_id, timeout_s=self.preview_wait_s)
        await self.launches.flights.catch_up(job_id)
        record = found(await self.book.find(job_id), "job", job_id)
        record.held_by(request.lease_id)
        decided = await self._decided(record, round_index, request, None)
        if isinstance(decided, range):
            raise invalid(FieldError(field="round", message=f"{round_index} is over"))
        return decided[0].plan

    async def landed(self, key: AttemptKey, outcome: LaunchOutcome) -> None:
        """Book a launch whose invocations have all ended; no effect if it is booked already."""
        async with self.book.turn(key.job_id) as turn:
            if turn.record is None:
                _LOG.info("launch of a deleted job ended", extra={"job": key.job_id})
                return
            record, lines = self.spending.settle_ready(land(turn.record, key, outcome))
            entry = await self.book.look(self.book.round, key.job_id, key.round)
            rounds = () if entry is None else (with_counts(entry, key, outcome),)
            await turn.write(Change(record=record, rounds=rounds, lines=lines))

    async def adopt_orphans(self) -> None:
        """Book launches of an earlier process at their worst case: their ends are unknown."""
        for record in self.book.with_open_bills():
            try:
                await self._adopt(record)
            except UnreadableError as error:
                left_aside(record.job.job_id, error)

    async def _adopt(self, record: JobRecord) -> None:
        for attempt in record.open_attempts:
            if attempt.outcome is None:
                timeout_s = self.spending.basis.function_timeout_s
                worst = worst_outcome(attempt.num_invocations, timeout_s=timeout_s)
                await self.landed(attempt.key(record.job.job_id), worst)

    async def _written(
        self, job_id: str, round_index: int, request: RoundRequest, forgotten: range | None
    ) -> _Written | range:
        """Decide about a request and write the plan.

        If rounds are repeated, the cache has to forget them first: unless it has `forgotten` them,
        they are returned and nothing is written.
        """
        async with self.book.turn(job_id) as turn:
            record = found(turn.record, "job", job_id)
            record.held_by(request.lease_id)
            decided = await self._decided(record, round_index, request, forgotten)
            if isinstance(decided, range):
                lease_id = request.lease_id
                self.launches.supersede(job_id, from_round=round_index, lease_id=lease_id)
                return decided
            planned, change = decided
            if change is not None:
                record = await turn.write(change)
            order = self._begun(record, planned)
            return _Written(job=record.job, planned=planned, new=change is not None, order=order)

    async def _decided(
        self, record: JobRecord, round_index: int, request: RoundRequest, forgotten: range | None
    ) -> tuple[PlannedAttempt, Change | None] | range:
        """Return the stored plan of a request, or a new one and its change.

        Or return the rounds that the cache has to forget first.
        """
        check_external(record, request)
        before = await self.book.look(RoundsBefore.read, self.book, record.job, round_index)
        rule, most = record.job.hyperparameters, self.max_attempts
        if isinstance(rule, SearchHyperparameters):
            most *= rule.most_iterations
        where = place(before, request, max_attempts=most)
        if isinstance(where, PlannedAttempt):
            return where, None
        if where == "rewind":
            newest = before.round_index if before.last is None else before.last.round
            if (again := range(round_index, newest + 1)) != forgotten:
                return again
            record, before = await self.book.look_long(rewound, self.book, record, before)
        before = replace(before, reopened=where == "reopen")
        change, planned = await self._planned(record, request, before)
        if where == "rewind":
            change = replace(change, forget_rounds_from=round_index)
        return planned, change

    async def _forget_in_cache(self, job_id: str, again: range) -> None:
        """Remove rounds that are repeated from the cache.

        Raises:
            ApiError: 503, the cache cannot be reached.
        """
        try:
            await self.cache_thread.run(self.cache.forget_rounds, job_id, again)
        except CacheError as error:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error

    def _begun(self, record: JobRecord, planned: PlannedAttempt) -> LaunchOrder | None:
        """Return a stored plan's launch once, and count it as in flight.

        There is none if another process made the plan, or if it is in flight or booked. Needs the
        job's turn.
        """
        if planned.epoch != self._epoch or planned.launches is not None:
            return None
        order = LaunchOrder.of(planned, record.job)
        if not order.num_invocations or self.launches.flights.get(order.key) is not None:
            return None
        self.launches.expect(order)
        return order

    async def _planned(
        self, record: JobRecord, request: RoundRequest, before: RoundsBefore
    ) -> tuple[Change, PlannedAttempt]:
        """Close the previous round, decide about this one, and reserve its money."""
        now = self.now()
        reopened, ended = before.reopening, before.ended
        record, lines = closed(
            record,
            request,
            before,
            now,
            spending=self.spending,
            allowance_s=self.pricing.learner_allowance_s,
        )
        context = await self._context(record, request, before, now, lines)
        record, decision = decide_with_warm(context, at=self.spending.clock_s(record, now))
        plan = decision.plan
        planned = PlannedAttempt(
            plan=plan,
            lease_id=request.lease_id,
            planned_at=now,
            epoch=self._epoch,
            # A first attempt launches all, and thousands of indices would be long to write.
            samples=sample_indices(plan, request) if reopened else None,
            evaluations=evaluation_indices(plan, request, reopened) if reopened else None,
        )
        order = LaunchOrder.of(planned, record.job)
        busy, ready = context.concurrency.own_in_flight, self.warm()
        record = reserved(record, order, decision, now, busy=busy, ready=ready)
        entry = round_entry(
            reopened,
            planned,
            ratio=context.seen.ratio.value,
            memory=decision.memory,
        )
        entries = (entry,) if ended is None else (with_result(ended, request.previous), entry)
        return Change(record=record, rounds=entries, lines=lines), planned

    def _answer(self, written: _Written) -> RoundPlan:
        """Return the learner's answer."""
        planned = written.planned
        if written.new or written.order is not None:
            # Its actors start now, however long ago it was written.
            return planned.plan
        self.on_given_again(planned)
        age_s = max(0.0, self.now() - planned.planned_at)
        return planned.plan.model_copy(update={"age_s": age_s})

    async def _context(
        self,
        record: JobRecord,
        request: RoundRequest,
        before: RoundsBefore,
        now: float,
        lines: tuple[LedgerLine, ...],
    ) -> RoundContext:
        job_id, reopened = record.job.job_id, before.reopening
        counts = self.book.counts()
        num_running = counts.get("running", 0) + counts.get("stopping", 0)
        policy = scaling_policy(record.job.scaling_of(before.round_index))
        seen = await self.book.look(seen_by, policy, self.book, record, before, request)
        untold = await self.book.look(self.book.lines, job_id, skip=record.reported_lines)
        return RoundContext(
            record=record,
            request=request,
            now=now,
            policy=policy,
            seen=seen,
            concurrency=Concurrency(
                limit=self.quota.known,
                running_jobs=num_running,
                others_in_flight=self.launches.flights.in_flight(but=job_id),
                own_in_flight=(
                    self.launches.flights.in_flight(only=job_id) if before.open_rounds > 1 else 0
                ),
            ),
            pricing=self.pricing.with_learner(
                record.job.learner, record.job.spec.learner_task
            ).after(record.longest_learner_s),
            committed_usd=self.spending.committed_usd(record, now),
            quorum_share=self.quorum_share,
            longest_s=self.longest_job_s,
            settled=(*untold, *lines),
            again=None if reopened is None else reopened.last.plan,
            ended=before.stop,
            awaits_others=before.num_stops < before.open_rounds - 1,
        )

    def _observe(self, plan: RoundPlan, order: LaunchOrder | None, elapsed_s: float) -> None:
        metrics = self.metrics
        metrics.decisions.observe(elapsed_s)
        if order is None and plan.stop is None:
            return
        metrics.rounds.labels(stop=plan.stop or "none").inc()
        metrics.actors.labels(stage="requested").inc(plan.requested)
        metrics.actors.labels(stage="granted").inc(plan.num_actors)
        _LOG.info(
            "round planned",
            extra={
                "job": plan.job_id,
                "round": plan.round,
                "attempt": plan.attempt,
                "actors": plan.num_actors,
                "evaluations": plan.num_evaluations,
                "stop": plan.stop,
                "why": plan.reason,
            },
        )
