"""Runs and stops the learners' tasks, and records each job's task.

A task's number is written before the request to ECS, and its ARN after. If a scaler dies at any
step, the next one repeats the request, and ECS returns the same task.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord, LearnerStart
from services.scaler.capacity.decision import LIVE, CapacityRule, counts, is_held
from services.scaler.capacity.ecs_tasks import EcsTasks, LearnerCapacityError
from services.scaler.capacity.tasks import FoundTask, TaskDecision, TaskRule, decide_tasks, kind_of
from services.scaler.off_loop import OffLoop
from shared.contracts.learner_kind import MachineKind

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staffed:
    """The result of one run over the learners' tasks."""

    on: dict[MachineKind, int]
    """Running or starting learners of each kind."""
    waits: dict[str, str] = field(default_factory=dict)
    """Reasons to wait of jobs without a task, by id."""
    look_in_s: float = math.inf
    """Time of the next run, unless an event comes first."""


@dataclass(kw_only=True, eq=False)
class Staffing:
    """Keeps a task for each job with room, and stops all others."""

    book: Book
    ecs: EcsTasks
    threads: OffLoop
    rule: TaskRule
    capacity: CapacityRule
    concurrency: Callable[[], int | None]
    """Concurrent executions of the actor function, if known."""
    now: Callable[[], float]
    give_up: Callable[[str, str], Awaitable[None]]
    """Ends a job that gets no learner, with the reason."""

    async def look(self, jobs: Sequence[JobRecord], *, may_run: bool) -> Staffed:
        """Adjust the tasks to all unfinished jobs; run new ones if allowed.

        Raises:
            LearnerCapacityError: ECS cannot be reached or refuses.
            FencedError: Another scaler writes the book.
        """
        found = await self.threads.run(self.ecs.found)
        now = self.now()
        decided = decide_tasks(
            jobs,
            found,
            self.rule,
            now,
            counts=lambda record: counts(record, self.capacity, now),
            concurrency=self.concurrency(),
        )
        for arn, why in decided.stop.items():
            # An unknown job may belong to another scaler.
            self.book.require_ours()
            _LOG.info("task of a learner is stopped", extra={"task": arn, "why": why})
            await self.threads.run(self.ecs.stop, arn, why)
        for job_id, why in decided.given_up.items():
            _LOG.warning("job waited for a learner in vain", extra={"job": job_id, "why": why})
            await self.give_up(job_id, why)
        waits = await self._run(decided) if may_run else {}
        return Staffed(
            on=decided.on,
            waits=decided.waits | waits,
            look_in_s=0.0 if decided.given_up else self._next_expiry_s(jobs, found, now),
        )

    def close(self) -> None:
        """Close idle connections."""
        self.ecs.close()

    async def _run(self, decided: TaskDecision) -> dict[str, str]:
        """Run the tasks; return the reasons of jobs for which ECS has no room.

        If it has none for a kind, later jobs of that kind are not requested.
        """
        refused: dict[MachineKind, str] = {}
        waits: dict[str, str] = {}
        for record, start in decided.run:
            kind, job_id = kind_of(record), record.job.job_id
            if kind not in refused:
                try:
                    decided.on[kind] += await self._run_one(kind, record, start)
                except LearnerCapacityError as error:
                    _LOG.warning("no task for a job", extra={"job": job_id, "why": str(error)})
                    refused[kind] = f"room in ECS, which said: {error}"
            if kind in refused:
                waits[job_id] = refused[kind]
        return waits

    async def _run_one(self, kind: MachineKind, record: JobRecord, start: LearnerStart) -> bool:
        job_id, number = record.job.job_id, start.number

        def ask(current: JobRecord) -> Change | None:
            if current.job.status not in LIVE or current.start != record.start:
                return None
            return Change(record=current.model_copy(update={"start": start}))

        def confirm(current: JobRecord) -> Change | None:
            if current.start is None or current.start.number != number:
                return None
            ran = current.start.model_copy(update={"task": arn})
            return Change(record=current.model_copy(update={"start": ran}))

        asked = await self.book.change(job_id, ask)
        if asked is None or asked.start != start:
            return False
        size = record.job.spec.learner_task
        arn = await self.threads.run(self.ecs.run, kind, job_id, number, size)
        _LOG.info("task of a learner runs", extra={"job": job_id, "task": arn, "number": number})
        await self.book.change(job_id, confirm)
        return True

    def _next_expiry_s(
        self, jobs: Sequence[JobRecord], found: Sequence[FoundTask], now: float
    ) -> float:
        """Return when the first job loses a learner whose task is gone, and gets a new one."""
        alive = {task.job_id for task in found}
        ends = (
            record.lease.expires_at - now
            for record in jobs
            if record.lease is not None and is_held(record, now)
            if record.job.learner in self.rule.most and record.job.job_id not in alive
        )
        return min(ends, default=math.inf)
