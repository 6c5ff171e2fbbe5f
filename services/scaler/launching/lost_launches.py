"""Finds and announces launches that were lost with a process.

A learner waits for its actors until a round's deadline. Nothing else announces actors of an earlier
scaler, or results lost with the cache. So this watcher checks open rounds when the scaler starts,
and when a plan is requested again. Once no launch of a round can still run, every missing actor is
announced as vanished. The learner then requests a relaunch.

This process knows its own launches. An earlier process's launches have ended when nothing in flight
is older than this process. An emulator reports that. AWS does not: there they have ended when the
function's time-out has passed since this process began.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from services.scaler.book.attempts import AttemptKey, PlannedAttempt
from services.scaler.book.book import Book
from services.scaler.book.reading import UnreadableError, left_aside
from services.scaler.book.records import JobRecord
from services.scaler.book.table import StoreError
from services.scaler.launching.lambda_function import LambdaApiError
from services.scaler.launching.launches import Launches
from services.scaler.off_loop import OffLoop
from shared.cache.arrivals import Mode
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts.jobs import Job, Wait

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.2
_LONGEST_PAUSE_S = 1.0
"""Between two failed checks."""
_LONGEST_INIT_S = 10.0
"""Lambda's limit for the initialisation of a new environment, before the function's time-out."""


@dataclass(kw_only=True, eq=False)
class LostLaunches:
    """Watches open rounds until their launches have ended."""

    book: Book
    launches: Launches
    cache: TrajectoryCache
    cache_thread: OffLoop
    oldest_invocation_s: Callable[[], Awaitable[float | None]]
    """Age of the oldest invocation in flight; None if unknown."""
    now: Callable[[], float]
    function_timeout_s: float
    monotonic_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        # Later launches are our own.
        self._began, self._began_at = self.monotonic_s(), self.now()
        self._earlier_ended = False
        self._watched: dict[AttemptKey, PlannedAttempt] = {}
        self._watching: asyncio.Task[None] | None = None

    async def watch_open_rounds(self) -> None:
        """Watch every open round of an earlier process."""
        for record in self.book.with_status(("queued", "running", "stopping")):
            try:
                for planned in await self.book.look(self._open_rounds, record):
                    self.watch(planned)
            except UnreadableError as error:
                left_aside(record.job.job_id, error)

    def watch(self, planned: PlannedAttempt) -> None:
        """Announce a plan's actors as lost when they can no longer answer; harmless to repeat."""
        self._watched[planned.key] = planned
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def shown(self, job: Job) -> Job:
        """Return a job with its reason to wait, if it waits for an earlier process's launches."""
        deadlines = [
            planned.planned_at + planned.plan.deadline_s
            for key, planned in [*self._watched.items()]
            if key.job_id == job.job_id and planned.planned_at < self._began_at
        ]
        if self._earlier_ended or not deadlines:
            return job
        until = min(max(deadlines), self._began_at + self._longest_s)
        reason = "actors launched before the scaler's restart; missing actors are then relaunched"
        return job.model_copy(update={"waits_for": Wait(reason=reason, until=until)})

    def _open_rounds(self, record: JobRecord) -> Iterable[PlannedAttempt]:
        newest = self.book.newest_rounds(record.job.job_id, record.job.spec.open_rounds)
        return [entry.last for entry in newest if entry.result is None and not entry.abandoned]

    @property
    def _longest_s(self) -> float:
        return self.function_timeout_s + _LONGEST_INIT_S

    async def _watch(self) -> None:
        """Check repeatedly until nothing is watched, with a backoff on failures."""
        pause_s = _LOOK_S
        while self._watched:
            try:
                if await self._earlier_launches_ended():
                    for planned in [*self._watched.values()]:
                        await self._look(planned)
                pause_s = _LOOK_S
            except Exception as error:
                # Catch everything: without this task learners would wait until their deadlines.
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                _LOG.warning(
                    "lost launches not found out yet",
                    extra={"why": str(error), "again_in_s": pause_s},
                    exc_info=None if isinstance(error, LambdaApiError) else error,
                )
            if self._watched:
                await asyncio.sleep(pause_s)
        self._watching = None

    async def _earlier_launches_ended(self) -> bool:
        """Whether all launches from before this process have ended.

        Raises:
            LambdaApiError: The API cannot be reached or refuses.
        """
        if not self._earlier_ended:
            age_s = self.monotonic_s() - self._began
            oldest_s = await self.oldest_invocation_s()
            ended = age_s > self._longest_s if oldest_s is None else oldest_s < age_s
            self._earlier_ended = ended
        return self._earlier_ended

    async def _look(self, planned: PlannedAttempt) -> None:
        """Announce a launch and stop watching it, if none of its round is in flight here."""
        plan = planned.plan
        if self.launches.flying(plan.job_id, plan.round):
            return
        try:
            entry = await self.book.look(self.book.round, plan.job_id, plan.round)
            if entry is not None and entry.result is None and entry.last.key == planned.key:
                await self.cache_thread.run(self._announce, planned)
        except (CacheError, StoreError) as error:
            # It stays watched, without delaying other jobs.
            _LOG.debug("lost launch not announced yet", extra={"why": str(error)})
        else:
            self._watched.pop(planned.key, None)

    def _announce(self, planned: PlannedAttempt) -> None:
        """Announce a plan's actors that have neither a result nor a failure.

        For an actor that this attempt relaunched, an earlier failure does not count. An actor that
        it did not relaunch may have failed for good, or have lost its result with the cache.
        """
        plan = planned.plan
        known = {
            (arrival.mode, arrival.actor_index)
            for arrival in self.cache.answered(plan.job_id, plan.round)
            if arrival.failed is None
            or arrival.attempt >= plan.attempt
            or not planned.launched(arrival.mode, arrival.actor_index)
        }
        # Evaluation episodes first: after the last rollout the learner requests all vanished tasks.
        asked: list[tuple[Mode, int]] = [("evaluate", i) for i in plan.function_evaluations]
        asked += [("sample", index) for index in plan.function_actors]
        vanished = [actor for actor in asked if actor not in known]
        for mode, actor_index in vanished:
            self.cache.announce_failure(
                plan.job_id,
                plan.round,
                mode=mode,
                actor_index=actor_index,
                attempt=plan.attempt,
                reason="it, or its result, was lost when a part of the system went away",
                kind="vanished",
            )
        if vanished:
            _LOG.warning(
                "actors vanished: the learner will relaunch them",
                extra={"job": plan.job_id, "round": plan.round, "actors": len(vanished)},
            )
