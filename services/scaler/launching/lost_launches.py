"""Launches that may have been lost with a process: found out, and announced.

A learner waits for its actors to a round's deadline. Nobody else announces those that an earlier
scaler launched, nor those whose results were lost with the cache. So an open round is watched here
when the scaler starts, and whenever its plan is asked for again. Once nothing that was launched for
it can still run, every actor of it that has not answered is announced: it vanished. The learner
then has it launched again.

What this process launched, it knows. What an earlier one launched has ended as soon as nothing in
flight is older than this process. An emulator tells that. AWS does not: there it has ended when the
function's time-out has passed since this process began.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from services.scaler.book.book import Book
from services.scaler.book.reading import UnreadableError, left_aside
from services.scaler.book.records import AttemptKey, JobRecord, PlannedAttempt
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
"""Between two looks that fail."""
_LONGEST_INIT_S = 10.0
"""How long Lambda lets a new environment initialise before the function's time-out counts."""


@dataclass(kw_only=True, eq=False)
class LostLaunches:
    """Watches open rounds until what was launched for them has ended."""

    book: Book
    launches: Launches
    cache: TrajectoryCache
    cache_thread: OffLoop
    oldest_invocation_s: Callable[[], Awaitable[float | None]]
    """Age of the oldest invocation in flight; None where nobody tells."""
    now: Callable[[], float]
    function_timeout_s: float
    monotonic_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        # What is launched from here on is ours.
        self._began, self._began_at = self.monotonic_s(), self.now()
        self._earlier_ended = False
        self._watched: dict[AttemptKey, PlannedAttempt] = {}
        self._watching: asyncio.Task[None] | None = None

    async def watch_open_rounds(self) -> None:
        """Watch every round that an earlier process has left open."""
        for record in self.book.with_status(("queued", "running", "stopping")):
            try:
                for planned in await self.book.look(self._open_rounds, record):
                    self.watch(planned)
            except UnreadableError as error:
                left_aside(record.job.job_id, error)

    def watch(self, planned: PlannedAttempt) -> None:
        """Announce a plan's actors as lost once they cannot answer any more; harmless to repeat."""
        self._watched[planned.key] = planned
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def shown(self, job: Job) -> Job:
        """Return a job with what it waits for, if it waits for launches of an earlier process."""
        deadlines = [
            planned.planned_at + planned.plan.deadline_s
            for key, planned in [*self._watched.items()]
            if key[0] == job.job_id and planned.planned_at < self._began_at
        ]
        if self._earlier_ended or not deadlines:
            return job
        until = min(max(deadlines), self._began_at + self._longest_s)
        reason = (
            "actors launched before the scaler was restarted; those that bring nothing are then "
            "launched again"
        )
        return job.model_copy(update={"waits_for": Wait(reason=reason, until=until)})

    def _open_rounds(self, record: JobRecord) -> Iterable[PlannedAttempt]:
        newest = self.book.newest_rounds(record.job.job_id, record.job.spec.open_rounds)
        return [entry.last for entry in newest if entry.result is None and not entry.abandoned]

    @property
    def _longest_s(self) -> float:
        return self.function_timeout_s + _LONGEST_INIT_S

    async def _watch(self) -> None:
        """Look again and again until nothing is watched; while looks fail, ever more rarely."""
        pause_s = _LOOK_S
        while self._watched:
            try:
                if await self._earlier_launches_ended():
                    for planned in [*self._watched.values()]:
                        await self._look(planned)
                pause_s = _LOOK_S
            except Exception as error:
                # Whatever went wrong: without this task learners wait to their deadlines.
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
        """Whether nothing runs any more that was launched before this process began.

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
        """Announce a launch and watch it no more, if nothing of its round flies from here."""
        plan = planned.plan
        if self.launches.flying(plan.job_id, plan.round):
            return
        try:
            entry = await self.book.look(self.book.round, plan.job_id, plan.round)
            if entry is not None and entry.result is None and entry.last.key == planned.key:
                await self.cache_thread.run(self._announce, planned)
        except (CacheError, StoreError) as error:
            # It stays watched, and keeps no other job waiting.
            _LOG.debug("lost launch not announced yet", extra={"why": str(error)})
        else:
            self._watched.pop(planned.key, None)

    def _announce(self, planned: PlannedAttempt) -> None:
        """Announce the actors of a plan that have neither brought a result nor failed.

        One that this attempt launched again has not failed in it because it failed before. One that
        it did not may have failed for good, or have lost its result with the cache.
        """
        plan = planned.plan
        known = {
            (arrival.mode, arrival.actor_index)
            for arrival in self.cache.answered(plan.job_id, plan.round)
            if arrival.failed is None
            or arrival.attempt >= plan.attempt
            or not planned.launched(arrival.mode, arrival.actor_index)
        }
        # Episodes first: the last rollout makes the learner ask for all that vanished.
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
                reason="it, or its result, was lost when a part of the system ended",
                kind="vanished",
            )
        if vanished:
            _LOG.warning(
                "actors vanished: the learner has them launched again",
                extra={"job": plan.job_id, "round": plan.round, "actors": len(vanished)},
            )
