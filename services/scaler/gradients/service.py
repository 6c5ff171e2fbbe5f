"""Gradients by functions: the learner's call for them, answered as often as asked, launched once.

Every request is held against the job's lease and its open rounds, by one read of the store. Money
for all calls of an update is reserved there with the first request of a round, before anything is
launched. From there on a request costs no write: which numbers were launched is known to this
process. One that was started anew does not know, bills what the earlier process reserved at
its worst, and launches a request again that the learner still waits for. Of two gradients of one
call the cache keeps the first.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.scaler.api.problem import conflict, found, invalid
from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord, OpenGradients
from services.scaler.book.table import StoreError
from services.scaler.gradients.calls import (
    CallsKey,
    CallsOrder,
    GradientOutcome,
    RoundCalls,
)
from services.scaler.gradients.pricing import calls_lines, calls_per_update, worst_calls_usd
from services.scaler.jobs.leases import held_lease
from services.scaler.launching.invoker import Awaited, Invoker
from services.scaler.money.accounting import book_lines
from services.scaler.money.budget import RoundPricing, closing_usd
from services.scaler.money.ledger import Clock
from shared.cache.connection import CacheError
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.gradients import (
    GradientGrant,
    GradientReport,
    GradientRequest,
    GradientTask,
)
from shared.contracts.leases import hash_of_lease
from shared.contracts.problem import FieldError
from shared.money.costs import EXECUTIONS_PER_TASK, CostBasis, projected_duration_s

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientAnswer:
    """What the learner is told, and what to launch after it."""

    grant: GradientGrant
    order: CallsOrder | None = None


@dataclass(kw_only=True, eq=False)
class GradientService:
    """Takes requests for gradients, launches functions and books what they cost. Thread-safe."""

    book: Book
    invoker: Invoker[GradientTask, GradientReport]
    cache: GradientCache
    now: Callable[[], float]
    basis: CostBasis
    pricing: RoundPricing
    clock: Clock
    slack_s: float
    """Added to twice the function's time-out: how long the learner waits for a call."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._rounds: dict[CallsKey, RoundCalls] = {}

    def ask(self, job_id: str, round_index: int, request: GradientRequest) -> GradientAnswer:
        """Answer a request; launch its order, if there is one, with `launch`.

        Raises:
            ApiError: There is no such job, the lease is lost, the round is not open, or the job
                wants no gradients.
        """
        record = found(self.book.job(job_id), "job", job_id)
        held_lease(record, request.lease_id)
        _require_open(record, round_index)
        key = (job_id, round_index, request.lease_id)
        with self._lock:
            calls = self._rounds.setdefault(key, RoundCalls())
        # One at a time: between a look at what is known and its change may lie a write.
        with calls.changing:
            return self._answer(key, calls, request)

    def launch(self, order: CallsOrder | None) -> None:
        """Start a request's functions, if it is to be launched now."""
        if order is None:
            return
        with self._lock:
            calls = self._rounds.get(order.key)
        if calls is not None:
            self.invoker.submit(
                order.tasks(),
                lambda outcome: self._ended(order.key, calls, outcome),
                Awaited(wanted=lambda: not calls.closed),
            )

    def close(self, job_id: str, *, before: int | None = None, but: str | None = None) -> None:
        """Let no more calls into a job's rounds, and book them once all have ended.

        Args:
            job_id: The job.
            before: Rounds below this one; None means all.
            but: Lease whose rounds from `before` on stay open; those of others end.
        """
        self.close_rounds(
            key
            for key in self.rounds_of(job_id)
            if before is None or key[1] < before or (but is not None and key[2] != but)
        )

    def rounds_of(self, job_id: str) -> list[CallsKey]:
        """Return the rounds of a job that are not booked."""
        with self._lock:
            return [key for key in self._rounds if key[0] == job_id]

    def close_rounds(self, keys: Iterable[CallsKey]) -> None:
        """Let no more calls into these rounds, and book them once all have ended.

        One that the store refused to book before is booked now.
        """
        for key in keys:
            with self._lock:
                calls = self._rounds.get(key)
                if calls is not None:
                    calls.closed = True
            self._book_if_landed(key)

    def adopt_orphans(self) -> None:
        """Bill calls of an earlier process at their worst: nobody will hear of their end."""
        for record in self.book.with_open_bills():
            calls: Counter[CallsKey] = Counter()
            for each in record.open_gradients:
                calls[record.job.job_id, each.round, each.lease_id] += each.num_calls
            for key, num_calls in calls.items():
                twice = EXECUTIONS_PER_TASK * num_calls
                timeout_s = self.basis.cold_start_s + self.basis.gradient_timeout_s
                self._book(key, [timeout_s] * twice, twice)

    def in_flight(self, job_id: str | None = None) -> int:
        """Return calls under way, of all jobs or of one."""
        with self._lock:
            return sum(
                calls.in_flight
                for key, calls in self._rounds.items()
                if job_id is None or key[0] == job_id
            )

    def _answer(self, key: CallsKey, calls: RoundCalls, request: GradientRequest) -> GradientAnswer:
        number, num_calls = request.request, len(request.calls)
        with self._lock:
            known, room = number in calls.known, calls.reserved - calls.launched
        refused = "" if known or room >= num_calls else self._reserve(key, calls, num_calls)
        if refused:
            return GradientAnswer(
                grant=GradientGrant(request=number, granted=False, reason=refused)
            )
        with self._lock:
            if calls.closed:
                job_id, round_index, _ = key
                raise conflict(f"gradients of round {round_index} of job {job_id} are not wanted")
            if not known:
                calls.add(request)
        deadline_s = EXECUTIONS_PER_TASK * self.basis.gradient_timeout_s + self.slack_s
        order = CallsOrder(key=key, request=request, deadline_at=self.now() + deadline_s)
        return GradientAnswer(
            grant=GradientGrant(request=number, granted=True, deadline_s=deadline_s),
            order=None if known else order,
        )

    def _reserve(self, key: CallsKey, calls: RoundCalls, at_least: int) -> str:
        """Set money aside for an update's calls; return why not, if there is too little.

        What ended of earlier updates in this round is billed with it, in place of what was set
        aside for that.
        """
        job_id, round_index, lease_id = key
        granted: list[int] = []
        why = ""
        with self._lock:
            in_flight, ended = calls.in_flight, calls.ended
        lines = calls_lines(*ended, self.basis, round_index=round_index)

        def decide(record: JobRecord) -> Change | None:
            nonlocal why
            granted.clear()  # after a conflict it is decided anew
            held_lease(record, lease_id)
            _require_open(record, round_index)
            spec = record.job.spec
            pricing = self.pricing.with_learner(record.job.learner)
            billed = book_lines(_without_reserve(record, key), lines)
            room_usd = spec.stop.budget_usd - billed.committed_usd - closing_usd(spec, pricing)
            for number in (max(at_least, calls_per_update(spec)), at_least):
                num_calls = in_flight + number
                reserve_usd = worst_calls_usd(num_calls, self.basis)
                if reserve_usd <= room_usd:
                    granted.append(num_calls)
                    reserved = _with_reserve(billed, key, num_calls, reserve_usd)
                    return Change(record=reserved, lines=lines)
            why = (
                f"budget: {at_least} gradients may cost ${reserve_usd:.4f}, "
                f"${max(0.0, room_usd):.4f} are left"
            )
            return None

        found(self.book.change(job_id, decide), "job", job_id)
        if not granted:
            return why
        with self._lock:
            calls.reserve(granted[-1], running=in_flight, billed=ended)
        return ""

    def _ended(self, key: CallsKey, calls: RoundCalls, outcome: GradientOutcome) -> None:
        billed_s = [self._on_aws(duration_s) for duration_s in outcome.billed_s]
        if outcome.report is None and not calls.closed:
            self._announce(key, outcome)
        with self._lock:
            calls.end(outcome, billed_s)
        self._book_if_landed(key)

    def _announce(self, key: CallsKey, outcome: GradientOutcome) -> None:
        job_id, round_index, lease_id = key
        task = outcome.task
        identity = {"job": job_id, "round": round_index, "call": task.call.call}
        _LOG.warning("gradient lost", extra={**identity, "why": outcome.reason})
        of = GradientRound(job_id=job_id, lease_hash=hash_of_lease(lease_id), round=round_index)
        try:
            self.cache.announce_lost_gradient(
                of,
                call=task.call.call,
                request=task.request,
                reason=outcome.reason,
                vanished=outcome.failure == "vanished",
            )
        except CacheError as error:
            # The learner then waits to the call's deadline instead.
            _LOG.warning("lost gradient not announced", extra={**identity, "why": str(error)})

    def _book_if_landed(self, key: CallsKey) -> None:
        with self._lock:
            calls = self._rounds.get(key)
            if calls is None or not calls.landed:
                return
        # Not while a request is answered: that bills what ended, too.
        with calls.changing, self._lock:
            if self._rounds.get(key) is not calls:
                return  # booked by another
            del self._rounds[key]
        try:
            self._book(key, calls.durations_s, calls.num_requests)
        except StoreError as error:
            with self._lock:
                self._rounds[key] = calls  # the next plan, or the job's end, tries again
            _LOG.warning("gradients not booked", extra={"job": key[0], "why": str(error)})

    def _book(self, key: CallsKey, durations_s: list[float], num_requests: int) -> None:
        job_id, round_index, _ = key

        def decide(record: JobRecord) -> Change | None:
            rest = _without_reserve(record, key)
            if rest == record:
                return None
            lines = calls_lines(durations_s, num_requests, self.basis, round_index=round_index)
            return Change(record=book_lines(rest, lines), lines=lines)

        self.book.change(job_id, decide)

    def _on_aws(self, measured_s: float) -> float:
        if self.clock == "wall":
            return measured_s
        basis = self.basis
        return projected_duration_s(
            measured_s, memory_mb=basis.gradient_memory_mb, timeout_s=basis.gradient_timeout_s
        )


def _require_open(record: JobRecord, round_index: int) -> None:
    """Refuse gradients of jobs that compute their own, and of rounds that are not open.

    Raises:
        ApiError: The job or the round is none of those.
    """
    if not record.job.spec.learns_on_functions:
        raise invalid(FieldError(field="request", message="the job's learner is no functions"))
    if all(each.round != round_index or each.held_s is not None for each in record.open_attempts):
        raise invalid(FieldError(field="round_index", message=f"round {round_index} is not open"))


def _without_reserve(record: JobRecord, key: CallsKey) -> JobRecord:
    _, *mine = key
    rest = tuple(each for each in record.open_gradients if [each.round, each.lease_id] != mine)
    return record.model_copy(update={"open_gradients": rest})


def _with_reserve(
    record: JobRecord, key: CallsKey, num_calls: int, reserve_usd: float
) -> JobRecord:
    _, round_index, lease_id = key
    more = OpenGradients(
        round=round_index, lease_id=lease_id, num_calls=num_calls, reserved_usd=reserve_usd
    )
    return record.model_copy(update={"open_gradients": (*record.open_gradients, more)})
