"""Rounds in flight: from a plan to its actors, and from their ends to one outcome.

A launch that failed for good is announced in the trajectory cache, so that the learner does not
wait for it. When the last invocation of a (round, attempt) has ended, what they cost and how long
they took is handed on as one `LaunchOutcome`. `Bookings` writes that into the store.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field

from services.scaler.book.records import AttemptKey, LaunchOutcome
from services.scaler.book.table import StoreError
from services.scaler.launching.in_use import InUse
from services.scaler.launching.invoker import ActorInvoker, Awaited, RetryKind, RolloutOutcome
from services.scaler.launching.lanes import Lanes
from services.scaler.launching.orders import LaunchOrder
from services.scaler.metrics import Metrics
from services.scaler.money.ledger import Clock
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts.leases import hash_of_lease
from shared.contracts.rounds import LaunchCounts
from shared.money.costs import lambda_billed_s, projected_duration_s

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


@dataclass(slots=True)
class _Flight:
    """Invocations of one launch, as they end."""

    order: LaunchOrder
    decided_at: float
    """`time.perf_counter`."""
    ended: list[RolloutOutcome] = field(default_factory=list)
    superseded: bool = False
    """The round is made again: the actors have successors of the same names."""
    called_off: bool = False
    """The job has ended: nobody waits for the actors."""
    retries: dict[RetryKind, int] = field(default_factory=lambda: {"failed": 0, "unreachable": 0})
    """Tries that were followed by another one."""
    latest_failure: str = ""
    """Why the latest try failed."""
    call_overhead_s: float | None = None
    """Fewest seconds a rollout's invocation took beside its steps."""

    @property
    def wanted(self) -> bool:
        """Whether a learner may still wait for it."""
        return not (self.superseded or self.called_off)

    def counts(self, launch_s: float | None = None) -> LaunchCounts:
        """Return what has become of the invocations so far."""
        ended = self.ended
        rollouts = [o.report for o in ended if o.report is not None and o.report.mode == "sample"]
        num_steps = sum(report.steps for report in rollouts)
        return LaunchCounts(
            requested=self.order.num_invocations,
            succeeded=sum(o.report is not None for o in ended),
            failed=sum(o.report is None for o in ended),
            cold_starts=sum(o.report is not None and o.report.cold_start for o in ended),
            vanished=sum(o.report is None and o.failure == "vanished" for o in ended),
            reissued=self.retries["failed"],
            throttled=sum(o.throttled for o in ended),
            unreached=self.retries["unreachable"],
            latest_failure=self.latest_failure,
            launch_s=launch_s,
            step_s=sum(r.rollout_s for r in rollouts) / num_steps if num_steps else None,
            call_overhead_s=self.call_overhead_s,
        )

    def end(self, outcome: RolloutOutcome, now: float) -> None:
        """Note how an invocation ended, at `time.perf_counter`."""
        self.ended.append(outcome)
        self.latest_failure = outcome.reason or self.latest_failure
        report, sent_at = outcome.report, outcome.sent_at
        # One that was sent again waited for more than itself.
        if report is None or sent_at is None or report.mode != "sample" or outcome.requests > 1:
            return
        overhead_s = max(0.0, now - sent_at - report.rollout_s)
        fewest_s = self.call_overhead_s
        self.call_overhead_s = overhead_s if fewest_s is None else min(fewest_s, overhead_s)


OutcomeSink = Callable[[AttemptKey, LaunchOutcome], None]


@dataclass(eq=False)
class Launches:
    """All rounds in flight. Thread-safe."""

    invoker: ActorInvoker
    cache: TrajectoryCache
    metrics: Metrics
    _: KW_ONLY
    clock: Clock
    memory_mb: int
    timeout_s: float

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._flights: dict[AttemptKey, _Flight] = {}
        self.in_use = InUse()
        """Environments that were under way, on the clock `time.monotonic`."""
        self.lanes = Lanes()

    def expect(self, order: LaunchOrder) -> None:
        """Count a plan's actors as in flight from the moment it is decided."""
        decided_at = time.perf_counter()
        self.lanes.begin(order, decided_at)
        with self._changed:
            self._flights[order.key] = _Flight(order, decided_at)
            self.in_use.note(self.in_flight(), time.monotonic())
        self.metrics.in_flight.inc(order.num_invocations)

    def launch(self, order: LaunchOrder, on_complete: OutcomeSink) -> None:
        """Invoke every actor of an expected plan; call back once, when the last has ended."""
        with self._changed:
            flight = self._flights[order.key]

        def on_retry(kind: RetryKind, why: str) -> None:
            with self._changed:
                flight.retries[kind] += 1
                flight.latest_failure = why

        self.invoker.submit(
            order.tasks(),
            lambda outcome: self._ended(flight, outcome, on_complete),
            Awaited(
                until=flight.decided_at + order.plan.deadline_s,
                wanted=lambda: flight.wanted,
                on_retry=on_retry,
            ),
        )

    def so_far(self, key: AttemptKey) -> LaunchCounts | None:
        """Return what has become of a launch so far; None when it is not in flight."""
        with self._changed:
            flight = self._flights.get(key)
            return None if flight is None else flight.counts()

    def supersede(self, job_id: str, *, from_round: int, lease_id: str) -> None:
        """Announce no more failures of launches whose rounds are made again under a lease."""
        with self._changed:
            for (flying, round_index, _, launched_under), flight in self._flights.items():
                again = flying == job_id and round_index >= from_round
                if again and launched_under != lease_id:
                    flight.superseded = True

    def in_flight(self, *, but: str | None = None, only: str | None = None) -> int:
        """Return invocations under way: of all jobs, of all `but` one, or of `only` one."""
        with self._changed:
            return sum(
                flight.order.num_invocations - len(flight.ended)
                for (job_id, *_), flight in self._flights.items()
                if job_id != but and only in (None, job_id)
            )

    def flying(self, job_id: str, round_index: int) -> bool:
        """Whether anything launched for a round, in whichever attempt, is in flight."""
        with self._changed:
            return any(key[:2] == (job_id, round_index) for key in self._flights)

    def lease_hashes(self, job_id: str) -> set[str]:
        """Return the lease hashes under which what is in flight of a job was launched."""
        with self._changed:
            return {hash_of_lease(lease) for (job, _, _, lease) in self._flights if job == job_id}

    def call_off(self, job_id: str, lease_hashes: Collection[str]) -> None:
        """Keep actors of a job that has ended from starting: nobody waits for them.

        Only those of the leases under which something was in flight by then: it may be resumed by
        now, and what has been launched since is wanted.
        """
        if not lease_hashes:
            return
        with self._changed:
            for (flying, _, _, lease_id), flight in self._flights.items():
                if flying == job_id and hash_of_lease(lease_id) in lease_hashes:
                    flight.called_off = True
        try:
            self.cache.request_cancel(job_id, lease_hashes)
        except CacheError as error:
            _LOG.warning("actors not cancelled", extra={"job": job_id, "why": str(error)})

    def wait_landed(self, job_id: str, *, timeout_s: float) -> bool:
        """Wait until nothing of a job is in flight; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(key[0] != job_id for key in self._flights), timeout_s
            )

    def pause(self, seconds: float) -> bool:
        """Wait; return False, and at once, when nothing is launched any more."""
        return self.invoker.pause(seconds)

    def _ended(self, flight: _Flight, outcome: RolloutOutcome, on_complete: OutcomeSink) -> None:
        now = time.perf_counter()
        self.metrics.in_flight.dec()
        self.metrics.throttles.inc(outcome.throttled)
        kind = "failed" if outcome.report is None else outcome.report.outcome
        self.metrics.invocations.labels(outcome=kind).inc()
        if outcome.report is not None:
            self.metrics.cold_starts.inc(outcome.report.cold_start)
            self.metrics.actor_seconds.labels(stage="rollout").inc(outcome.report.rollout_s)
            self.metrics.actor_seconds.labels(stage="handler").inc(outcome.report.total_s)
        self.lanes.end(flight.order.key, outcome, now)
        if not flight.superseded:
            self._announce(outcome)
        with self._changed:
            flight.end(outcome, now)
            complete = len(flight.ended) == flight.order.num_invocations
        if not complete:
            return
        try:
            on_complete(flight.order.key, self._summary(flight))
        finally:
            with self._changed:
                self._flights.pop(flight.order.key, None)
                self._changed.notify_all()

    def _announce(self, outcome: RolloutOutcome) -> None:
        report, task = outcome.report, outcome.task
        if report is not None and report.outcome != "cancelled":
            return
        reason = outcome.reason if report is None else "the actor was cancelled"
        identity = {"job": task.job_id, "round": task.round, "actor": task.actor_index}
        _LOG.warning("actor lost", extra={**identity, "mode": task.mode, "why": reason})
        try:
            self.cache.announce_failure(
                task.job_id,
                task.round,
                mode=task.mode,
                actor_index=task.actor_index,
                attempt=task.attempt,
                reason=reason,
                kind=outcome.failure,
            )
        except CacheError as error:
            # The learner then waits to the round's deadline instead.
            _LOG.warning("lost actor not announced", extra={**identity, "why": str(error)})

    def _summary(self, flight: _Flight) -> LaunchOutcome:
        ended = flight.ended
        times = [[self._on_aws(duration) for duration in o.billed_s] for o in ended]
        totals = [(o.task.mode, sum(t)) for o, t in zip(ended, times, strict=True)]
        sent_at = [o.sent_at for o in ended if o.sent_at is not None]
        launch_s = max(sent_at) - flight.decided_at if sent_at else None
        if launch_s is not None:
            self.metrics.launches.observe(launch_s)
        return LaunchOutcome(
            counts=flight.counts(launch_s),
            requests=sum(o.requests for o in ended),
            # Whole milliseconds are short to write: the record of a job with several rounds of
            # thousands of actors has to fit into one item of its store.
            durations_s=tuple(lambda_billed_s(duration) for task in times for duration in task),
            slowest_sample_s=max((s for mode, s in totals if mode == "sample"), default=0.0),
            slowest_evaluation_s=max((s for mode, s in totals if mode == "evaluate"), default=0.0),
        )

    def _on_aws(self, measured_s: float) -> float:
        if self.clock == "wall":
            return measured_s
        return projected_duration_s(measured_s, memory_mb=self.memory_mb, timeout_s=self.timeout_s)


@dataclass(eq=False)
class Bookings:
    """Books every outcome, however often the store refuses it. Thread-safe.

    An outcome is heard of once. One that is dropped would leave the round's worst case reserved for
    ever. So it is kept and tried again: by the job's next plan, and after pauses while the process
    lives.
    """

    book: OutcomeSink
    """Writes an outcome; harmless to repeat."""
    pause: Callable[[float], bool]
    """Waits so many seconds; returns False, at once, when the process is to end."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[AttemptKey, LaunchOutcome] = {}
        self._trying = False

    def add(self, key: AttemptKey, outcome: LaunchOutcome) -> None:
        """Book an outcome now or, if the store refuses it, later."""
        if self._booked(key, outcome):
            return
        with self._lock:
            self._kept[key] = outcome
            if self._trying:
                return
            self._trying = True
        threading.Thread(target=self._try_again, name="bookings", daemon=True).start()

    def catch_up(self, job_id: str) -> None:
        """Try again now with what is kept of a job."""
        with self._lock:
            kept = [(key, outcome) for key, outcome in self._kept.items() if key[0] == job_id]
        self._book_kept(kept)

    def _try_again(self) -> None:
        """Book what is kept, one try after another, until nothing is."""
        pause_s = _FIRST_PAUSE_S
        while True:
            closing = not self.pause(pause_s)
            with self._lock:
                kept = list(self._kept.items())
            self._book_kept(kept)
            with self._lock:
                if closing or not self._kept:
                    self._trying = False
                    return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _book_kept(self, kept: Sequence[tuple[AttemptKey, LaunchOutcome]]) -> None:
        for key, outcome in kept:
            if self._booked(key, outcome):
                with self._lock:
                    self._kept.pop(key, None)

    def _booked(self, key: AttemptKey, outcome: LaunchOutcome) -> bool:
        try:
            self.book(key, outcome)
        except Exception as error:
            # Whatever went wrong: an outcome that is dropped here is lost.
            job_id, round_index, attempt, _ = key
            _LOG.warning(
                "outcome not booked yet",
                extra={"job": job_id, "round": round_index, "attempt": attempt, "why": str(error)},
                exc_info=None if isinstance(error, StoreError) else error,
            )
            return False
        return True
