"""Rounds in flight: from a plan to its actors, and from their ends to one outcome.

A permanently failed actor is announced in the trajectory cache, so that the learner does not wait
for it. After the last invocation of a (round, attempt), costs and durations become one
`LaunchOutcome`.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from services.scaler.book.attempts import AttemptKey, LaunchOutcome
from services.scaler.book.records import JobRecord
from services.scaler.launching.flights import Flight, Flights
from services.scaler.launching.in_use import InUse
from services.scaler.launching.invoker import ActorInvoker
from services.scaler.launching.lanes import Lanes
from services.scaler.launching.orders import LaunchOrder
from services.scaler.launching.tasks import RolloutOutcome
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from services.scaler.off_loop import OffLoop
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts.leases import hash_of_lease
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.contracts.rounds import LaunchCounts
from shared.money.costs import lambda_billed_s

_LOG = logging.getLogger(__name__)
RolloutFlight = Flight[RolloutTask, ActorReport]
OutcomeSink = Callable[[AttemptKey, LaunchOutcome], Awaitable[None]]


async def _nowhere(_key: AttemptKey, _outcome: LaunchOutcome) -> None:
    pass


@dataclass(eq=False)
class Launches:
    """All rounds in flight."""

    invoker: ActorInvoker
    cache: TrajectoryCache
    cache_thread: OffLoop
    metrics: Metrics
    spending: Spending
    on_landed: OutcomeSink = _nowhere
    """Books the outcome of a launch; harmless to repeat."""

    def __post_init__(self) -> None:
        self.flights: Flights[RolloutTask, ActorReport] = Flights(
            self.invoker, on_ended=self._ended, book=self._book
        )
        self.in_use = InUse()
        """Concurrent environments over time, on the clock `time.monotonic`."""
        self.lanes = Lanes()
        self.metrics.in_flight.set_function(self.flights.in_flight)

    def expect(self, order: LaunchOrder) -> None:
        """Count a plan's actors as in flight from its decision."""
        flight = self.flights.expect(order.key, order.num_invocations, closed=True)
        self.lanes.begin(order, flight.decided_at)
        self.in_use.note(self.flights.in_flight(), time.monotonic())

    def launch(self, order: LaunchOrder) -> None:
        """Invoke every actor of an expected plan."""
        flight = self.flights.get(order.key)
        if flight is not None:
            until = flight.decided_at + order.plan.deadline_s
            self.flights.launch(flight, order.tasks, num_tasks=order.num_invocations, until=until)

    def so_far(self, key: AttemptKey) -> LaunchCounts | None:
        """Return a launch's outcome so far; None if it is not in flight."""
        flight = self.flights.get(key)
        return None if flight is None else counts_of(flight)

    def supersede(self, job_id: str, *, from_round: int, lease_id: str) -> None:
        """Stop announcing failures of launches whose rounds are repeated under a lease."""
        for flight in self.flights.of(job_id):
            if flight.key.round >= from_round and flight.key.lease_id != lease_id:
                # Later actors have the same names.
                flight.wanted = False

    def flying(self, job_id: str, round_index: int) -> bool:
        """Whether any attempt of a round is in flight."""
        return any(f.key.round == round_index and not f.landed for f in self.flights.of(job_id))

    def call_off(self, record: JobRecord) -> set[str]:
        """Keep an ended job's actors from starting: no learner waits for them.

        A plan that was written but never launched frees its reservation. Needs the job's turn.

        Returns:
            The hashes of the leases under which they were launched, for `cancel`.
        """
        job_id = record.job.job_id
        self.flights.close_unlaunched(
            each.key(job_id) for each in record.open_attempts if each.outcome is None
        )
        flights = self.flights.of(job_id)
        for flight in flights:
            flight.wanted = False
        return {hash_of_lease(flight.key.lease_id) for flight in flights}

    def cancel(self, job_id: str, lease_hashes: Collection[str]) -> asyncio.Task[None]:
        """Cancel running actors, except those of later leases."""
        return self.flights.begin(self._cancel(job_id, lease_hashes))

    async def _cancel(self, job_id: str, lease_hashes: Collection[str]) -> None:
        if not lease_hashes:
            return
        try:
            await self.cache_thread.run(self.cache.request_cancel, job_id, lease_hashes)
        except CacheError as error:
            _LOG.warning("actors not cancelled", extra={"job": job_id, "why": str(error)})

    async def _ended(self, flight: RolloutFlight, outcome: RolloutOutcome) -> None:
        now, metrics = time.perf_counter(), self.metrics
        metrics.throttles.inc(outcome.throttled)
        kind = "failed" if outcome.report is None else outcome.report.outcome
        metrics.invocations.labels(outcome=kind).inc()
        if outcome.report is not None:
            metrics.cold_starts.inc(outcome.report.cold_start)
            metrics.actor_seconds.labels(stage="rollout").inc(outcome.report.rollout_s)
            metrics.actor_seconds.labels(stage="handler").inc(outcome.report.total_s)
        self.lanes.end(flight.key, outcome, now)
        if flight.wanted:
            await self._announce(outcome)

    async def _announce(self, outcome: RolloutOutcome) -> None:
        report, task = outcome.report, outcome.task
        if report is not None and report.outcome != "cancelled":
            return
        reason = outcome.reason if report is None else "the actor was cancelled"
        identity = {"job": task.job_id, "round": task.round, "actor": task.actor_index}
        _LOG.warning("actor lost", extra={**identity, "mode": task.mode, "why": reason})
        try:
            await self.cache_thread.run(
                self.cache.announce_failure,
                task.job_id,
                task.round,
                mode=task.mode,
                actor_index=task.actor_index,
                attempt=task.attempt,
                reason=reason,
                kind=outcome.failure,
            )
        except CacheError as error:
            # The learner then waits until the round's deadline.
            _LOG.warning("lost actor not announced", extra={**identity, "why": str(error)})

    async def _book(self, flight: RolloutFlight) -> None:
        await self.on_landed(flight.key, self._summary(flight))

    def _summary(self, flight: RolloutFlight) -> LaunchOutcome:
        ended = [outcome for outcome, _ in flight.ended]
        basis = self.spending.basis
        billed_s = partial(
            self.spending.execution_s,
            memory_mb=basis.memory_mb,
            timeout_s=basis.function_timeout_s,
        )
        times = [[billed_s(duration) for duration in o.billed_s] for o in ended]
        totals = [(o.task.mode, sum(t)) for o, t in zip(ended, times, strict=True)]
        slowest_sample_s = max((s for mode, s in totals if mode == "sample"), default=0.0)
        if self.spending.clock == "projected" and (searched_s := search_s(ended)) is not None:
            slowest_sample_s = self.spending.execution_s(
                searched_s, memory_mb=basis.memory_mb, timeout_s=math.inf
            )
        sent_at = [o.sent_at for o in ended if o.sent_at is not None]
        launch_s = max(sent_at) - flight.decided_at if sent_at else None
        if launch_s is not None and not flight.refused:
            self.metrics.launches.observe(launch_s)
        return LaunchOutcome(
            counts=counts_of(flight, launch_s),
            requests=sum(o.requests for o in ended),
            # Whole milliseconds are compact: the record of a job with several rounds of thousands
            # of actors has to fit into one item.
            durations_s=tuple(lambda_billed_s(duration) for task in times for duration in task),
            slowest_sample_s=slowest_sample_s,
            slowest_evaluation_s=max((s for mode, s in totals if mode == "evaluate"), default=0.0),
        )


def search_s(ended: Sequence[RolloutOutcome]) -> float | None:
    """Return how long a search's actors would play if all of them ran at once.

    They share each iteration's episodes, and wait for its longest part: the longest of the round
    stands for it. Here a few may have played the parts of all.

    Returns:
        Seconds on a core here; None if no actor of a search has reported.
    """
    samples = [(o.task.search, o.report) for o in ended if o.task.mode == "sample"]
    played = [(search, report) for search, report in samples if search and report]
    if not played:
        return None
    search, _ = played[0]
    reports = [report for _, report in played]
    episodes = sum(len(report.episode_lengths) for report in reports)
    longest_s = max(
        (max(r.episode_lengths) * r.rollout_s / r.steps for r in reports if r.steps), default=0.0
    )
    iterations = math.ceil(episodes / (2 * search.directions))
    part_s = len(search.episodes(0)) * longest_s
    return max(sum(r.rollout_s for r in reports) / len(samples), iterations * part_s)


def counts_of(flight: RolloutFlight, launch_s: float | None = None) -> LaunchCounts:
    """Return the outcome of the invocations so far."""
    ended = tuple(flight.ended)
    outcomes = [outcome for outcome, _ in ended]
    rollouts = [o.report for o in outcomes if o.report is not None and o.report.mode == "sample"]
    num_steps = sum(report.steps for report in rollouts)
    # A retried invocation includes other waiting.
    overheads = (
        max(0.0, at - o.sent_at - o.report.rollout_s)
        for o, at in ended
        if o.report is not None and o.report.mode == "sample"
        if o.sent_at is not None and o.requests <= 1
    )
    return LaunchCounts(
        requested=flight.num_tasks,
        succeeded=sum(o.report is not None for o in outcomes),
        failed=sum(o.report is None for o in outcomes),
        cold_starts=sum(o.report is not None and o.report.cold_start for o in outcomes),
        vanished=sum(o.report is None and o.failure == "vanished" for o in outcomes),
        reissued=flight.retries["failed"],
        throttled=sum(o.throttled for o in outcomes),
        unreached=flight.retries["unreachable"],
        latest_failure=flight.latest_failure,
        launch_s=launch_s,
        step_s=sum(r.rollout_s for r in rollouts) / num_steps if num_steps else None,
        call_overhead_s=min(overheads, default=None),
    )
