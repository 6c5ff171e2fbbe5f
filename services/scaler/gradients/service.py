"""Gradients by functions: the learner's idempotent call, launched once.

Every request is checked against the job's lease and its open rounds. The first request of a round
reserves money for all calls of an update in the job's record, before any launch. Later requests
need no write: this process remembers the launched numbers. A restarted process does not, so it
bills the earlier reservation at its worst case, and relaunches requests for which the learner still
waits. The cache keeps the first of two gradients of one call. A round's calls under one lease are
one flight.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from services.scaler.book.attempts import AttemptKey, OpenGradients
from services.scaler.book.book import Book, Turn
from services.scaler.book.records import Change, JobRecord
from services.scaler.launching.flights import Flight, Flights
from services.scaler.launching.invoker import Invoker
from services.scaler.launching.tasks import GradientOutcome
from services.scaler.money.account import book_lines
from services.scaler.money.accounting import Spending
from services.scaler.money.gradient_pricing import calls_lines, calls_per_update, worst_calls_usd
from services.scaler.off_loop import OffLoop
from services.scaler.refusals import conflict, found, invalid
from shared.cache.connection import CacheError
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.billing import LedgerLine
from shared.contracts.gradients import (
    GradientGrant,
    GradientReport,
    GradientRequest,
    GradientTask,
)
from shared.contracts.leases import hash_of_lease
from shared.contracts.problem import FieldError
from shared.money.costs import EXECUTIONS_PER_TASK

_LOG = logging.getLogger(__name__)
CallsFlight = Flight[GradientTask, GradientReport]
Ended = Sequence[tuple[GradientOutcome, float]]


@dataclass(slots=True)
class _Asked:
    """The state of a flight's requests; changes need the job's turn."""

    known: set[int] = field(default_factory=set)
    """Their numbers."""
    room: int = 0
    """Calls with reserved money that are not launched yet."""


@dataclass(kw_only=True, eq=False)
class GradientService:
    """Handles requests for gradients, launches functions and books their costs."""

    book: Book
    invoker: Invoker[GradientTask, GradientReport]
    cache: GradientCache
    cache_thread: OffLoop
    now: Callable[[], float]
    spending: Spending
    slack_s: float
    """Added to twice the function's time-out: how long the learner waits for a call."""

    def __post_init__(self) -> None:
        self.flights: Flights[GradientTask, GradientReport] = Flights(
            self.invoker, on_ended=self._ended, book=self._book
        )
        self._asked: dict[AttemptKey, _Asked] = {}

    async def ask(self, job_id: str, round_index: int, request: GradientRequest) -> GradientGrant:
        """Answer a request, and launch its functions once.

        Raises:
            ApiError: There is no such job, the lease is lost, the round is not open, or the job
                does not use functions.
        """
        async with self.book.turn(job_id) as turn:
            record = found(turn.record, "job", job_id)
            record.held_by(request.lease_id)
            _require_open(record, round_index)
            key = AttemptKey(job_id, round_index, 0, request.lease_id)
            return await self._answer(turn, key, request)

    async def close(self, job_id: str, *, before: float = math.inf, but: str = "") -> None:
        """Close a job's rounds to further calls, and book them when all calls have ended.

        Rounds from `before` under the lease `but` stay open. Refused bookings are retried now.
        """
        if not self.flights.of(job_id):
            return
        async with self.book.turn(job_id):
            self._close(job_id, before=before, but=but)
        await self.flights.catch_up(job_id)

    def end(self, record: JobRecord) -> None:
        """Close an ended job to further calls; `catch_up` books landed flights.

        This frees reservations that were never launched. It needs the job's turn.
        """
        job_id = record.job.job_id
        self.flights.close_unlaunched(each.key(job_id) for each in record.open_gradients)
        self._close(job_id)

    async def adopt_orphans(self) -> None:
        """Bill calls of an earlier process at their worst case: their ends are unknown."""
        for record in self.book.with_open_bills():
            for each in record.open_gradients:
                await self._bill(each.key(record.job.job_id), None)

    def _close(self, job_id: str, *, before: float = math.inf, but: str = "") -> None:
        for flight in self.flights.of(job_id):
            if flight.key.round < before or flight.key.lease_id != but:
                flight.wanted, flight.closed = False, True

    async def _answer(self, turn: Turn, key: AttemptKey, request: GradientRequest) -> GradientGrant:
        number, num_calls = request.request, len(request.calls)
        flight = self.flights.get(key)
        if flight is not None and flight.closed:
            raise conflict(f"gradients of round {key.round} of job {key.job_id} are not wanted")
        asked = self._asked.get(key, _Asked())
        deadline_s = EXECUTIONS_PER_TASK * self.spending.basis.gradient_timeout_s + self.slack_s
        if number not in asked.known:
            if asked.room < num_calls:
                refused = await self._reserve(turn, key, asked, num_calls)
                if refused:
                    return GradientGrant(request=number, granted=False, reason=refused)
            self._asked[key] = asked
            asked.known.add(number)
            asked.room -= num_calls
            flight = self.flights.expect(key, num_calls, closed=False)
            tasks = partial(_tasks, key, request, deadline_at=self.now() + deadline_s)
            self.flights.launch(flight, tasks, num_tasks=num_calls, until=math.inf)
        return GradientGrant(request=number, granted=True, deadline_s=deadline_s)

    async def _reserve(self, turn: Turn, key: AttemptKey, asked: _Asked, at_least: int) -> str:
        """Reserve money for an update's calls; return the reason if there is too little.

        Ended calls of earlier updates in this round are billed, which replaces their reservation.
        """
        flight, record = self.flights.get(key), turn.record
        assert record is not None
        ended = () if flight is None else tuple(flight.ended)
        running = 0 if flight is None else flight.in_flight
        reserve, spec = _reserve_of(record, key), record.job.spec
        lines = self._lines(key, ended[reserve.num_billed if reserve else 0 :])
        billed = book_lines(_without(record, reserve), lines)
        room_usd = spec.stop.budget_usd - self.spending.claimed_usd(billed, self.now())
        for number in (max(at_least, calls_per_update(spec)), at_least):
            reserve_usd = worst_calls_usd(running + number, self.spending.basis)
            if reserve_usd <= room_usd:
                more = OpenGradients(
                    round=key.round,
                    lease_id=key.lease_id,
                    num_calls=running + number,
                    reserved_usd=reserve_usd,
                    num_billed=len(ended),
                )
                updated = {"open_gradients": (*billed.open_gradients, more)}
                await turn.write(Change(record=billed.model_copy(update=updated), lines=lines))
                asked.room = number
                return ""
        return (
            f"budget: {at_least} gradients may cost ${reserve_usd:.4f}, "
            f"${max(0.0, room_usd):.4f} are left"
        )

    async def _ended(self, flight: CallsFlight, outcome: GradientOutcome) -> None:
        if outcome.report is None and flight.wanted:
            await self._announce(flight.key, outcome)

    async def _announce(self, key: AttemptKey, outcome: GradientOutcome) -> None:
        task = outcome.task
        identity = {"job": key.job_id, "round": key.round, "call": task.call.call}
        _LOG.warning("gradient lost", extra={**identity, "why": outcome.reason})
        lease_hash = hash_of_lease(key.lease_id)
        of = GradientRound(job_id=key.job_id, lease_hash=lease_hash, round=key.round)
        try:
            await self.cache_thread.run(
                self.cache.announce_lost_gradient,
                of,
                call=task.call.call,
                request=task.request,
                reason=outcome.reason,
                vanished=outcome.failure == "vanished",
            )
        except CacheError as error:
            # The learner then waits until the call's deadline.
            _LOG.warning("lost gradient not announced", extra={**identity, "why": str(error)})

    async def _book(self, flight: CallsFlight) -> None:
        """Bill the unbilled rest of a round's calls, which have all ended."""
        await self._bill(flight.key, flight.ended)
        self._asked.pop(flight.key, None)

    async def _bill(self, key: AttemptKey, ended: Ended | None) -> None:
        """Replace the reservation for a round's calls by their bill; None means the worst case."""

        def decide(record: JobRecord) -> Change | None:
            reserve = _reserve_of(record, key)
            if reserve is None:
                return None
            if ended is None:
                lines = self._worst_lines(reserve)
            else:
                lines = self._lines(key, ended[reserve.num_billed :])
            return Change(record=book_lines(_without(record, reserve), lines), lines=lines)

        await self.book.change(key.job_id, decide)

    def _worst_lines(self, reserve: OpenGradients) -> tuple[LedgerLine, ...]:
        basis, twice = self.spending.basis, EXECUTIONS_PER_TASK * reserve.num_calls
        longest_s = basis.cold_start_s + basis.gradient_timeout_s
        return calls_lines([longest_s] * twice, twice, basis, round_index=reserve.round)

    def _lines(self, key: AttemptKey, ended: Ended) -> tuple[LedgerLine, ...]:
        basis = self.spending.basis
        billed_s = partial(
            self.spending.execution_s,
            memory_mb=basis.gradient_memory_mb,
            timeout_s=basis.gradient_timeout_s,
        )
        durations_s = [billed_s(each) for outcome, _ in ended for each in outcome.billed_s]
        num_requests = sum(outcome.requests for outcome, _ in ended)
        return calls_lines(durations_s, num_requests, basis, round_index=key.round)


def _tasks(key: AttemptKey, request: GradientRequest, *, deadline_at: float) -> list[GradientTask]:
    """Return the Lambda events of a request; the deadline is in Unix seconds."""
    lease_hash = hash_of_lease(key.lease_id)
    return [
        GradientTask(
            job_id=key.job_id,
            round=key.round,
            request=request.request,
            lease_hash=lease_hash,
            call=call,
            deadline_at=deadline_at,
        )
        for call in request.calls
    ]


def _require_open(record: JobRecord, round_index: int) -> None:
    """Refuse gradients of jobs without functions, and of rounds that are not open.

    Raises:
        ApiError: The job or the round is none of those.
    """
    if not record.job.spec.learns_on_functions:
        raise invalid(
            FieldError(field="request", message="the job's learner does not use functions")
        )
    if all(each.round != round_index or each.held_s is not None for each in record.open_attempts):
        raise invalid(FieldError(field="round_index", message=f"round {round_index} is not open"))


def _reserve_of(record: JobRecord, key: AttemptKey) -> OpenGradients | None:
    """Return what is set aside for a round's calls."""
    return next((each for each in record.open_gradients if each.key(key.job_id) == key), None)


def _without(record: JobRecord, reserve: OpenGradients | None) -> JobRecord:
    rest = tuple(each for each in record.open_gradients if each is not reserve)
    return record.model_copy(update={"open_gradients": rest})
