"""Reconciles capacity with the jobs: at start, after every change and every minute.

It is a separate task, so no round waits for it. If AWS refuses, actors only start cold and the
learner comes later. Every run compares the wanted with the configured state, so an earlier process
may have died at any step. Failures are retried at the next run, and show in metrics and readiness
until they are resolved.

It also pings idle environments.

The heartbeat announces capacity before it is opened, so that the dead-man switch does not close it.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.book.table import StoreError
from services.scaler.capacity.decision import (
    LIVE,
    CapacityRule,
    allowed_until,
    clients_gone_at,
    environments_allowed,
    environments_wanted,
    is_held,
    limits_at,
)
from services.scaler.capacity.ecs_tasks import LearnerCapacityError
from services.scaler.capacity.heartbeat import Heartbeat, HeartbeatError
from services.scaler.capacity.keep_alive import KeepAlive, environments_to_keep
from services.scaler.capacity.learners_heard import LearnersHeard
from services.scaler.capacity.staffing import Staffing
from services.scaler.launching.lambda_function import LambdaApiError, LambdaFunction
from services.scaler.metrics import Metrics
from services.scaler.money.account import started_by_pings
from services.scaler.money.kept_warm import kept_by_pings
from shared.contracts.jobs import FINISHED, Job, Wait
from shared.contracts.learner_kind import MACHINE_KINDS, LearnerKind
from shared.contracts.leases import LeaseRequest
from shared.service.threads import essential_task

_LOG = logging.getLogger(__name__)
_POLL_S = 2.0
"""While environments warm up: interval of checks of their number."""
_EXPECTED = (LambdaApiError, LearnerCapacityError, HeartbeatError, StoreError)
_AGAIN = "failed at the last reconciliation and will be retried; the scaler's log says why"

_UNANNOUNCED = "nothing is opened without a heartbeat"

_Step = Callable[[Sequence[JobRecord]], Awaitable[str | None]]


class Alarm:
    """The reconciler's timer."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the current or the next sleeper."""
        self._event.set()

    async def sleep(self, timeout_s: float) -> None:
        """Return when it was rung, or after that long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()


@dataclass(kw_only=True, eq=False)
class CapacityReconciler:
    """Opens and closes provisioned concurrency and learners as jobs come and go."""

    book: Book
    rule: CapacityRule
    function: LambdaFunction
    staffing: Staffing | None
    """Starts learners for jobs; None if they are permanent."""
    heartbeat: Heartbeat | None
    """None without a dead-man switch."""
    metrics: Metrics
    now: Callable[[], float]
    expire: Callable[[str, Callable[[JobRecord], bool]], Awaitable[None]]
    """Ends a job at its time limit or budget, if it still is over one of them."""
    forsake: Callable[[str], Awaitable[None]]
    """Ends an external job whose client is gone, unless it is back."""
    keep_alive: KeepAlive
    """Keeps idle environments alive."""
    every_s: float
    """Interval without events."""
    alarm: Alarm

    def __post_init__(self) -> None:
        self._announced = True
        self._asked = 0
        self.ready = 0
        """Warm environments, as last read."""
        self._ping_in_s = math.inf
        self._cold_pings = 0
        self._next_end_in_s = math.inf
        self.problems: dict[str, str] = {}
        """Degraded parts, by name; empty if all is well."""
        self._waits: dict[LearnerKind, str] = {}
        self._job_waits: dict[str, str] = {}
        self._heard = LearnersHeard(since=self.now())
        self._task: asyncio.Task[None] | None = None

    def heard_from(self, asked: LeaseRequest) -> None:
        """Record a learner's request for work."""
        said = self._heard.note(
            asked.learner_id, asked.kind, asked.trouble, self.now(), job_id=asked.job_id
        )
        if said:
            self.reconcile()

    def shown(self, job: Job) -> Job:
        """Return a job with its reason to wait for a learner, as last determined."""
        why = self._job_waits.get(job.job_id) or self._waits.get(job.learner)
        if why is None or job.waits_for is not None or job.status in (*FINISHED, "checking"):
            return job
        return job.model_copy(update={"waits_for": Wait(reason=why)})

    def start(self) -> None:
        """Start, with a reconciliation of an earlier process's state."""
        self._task = essential_task("capacity", self._run())

    def reconcile(self) -> None:
        """Reconcile soon: jobs were added or ended, or need another number of warm environments."""
        self.alarm.ring()

    async def close(self) -> None:
        """End; the next process reconciles the configured state."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self.staffing is not None:
            self.staffing.close()
        if self.heartbeat is not None:
            self.heartbeat.close()

    async def _run(self) -> None:
        while True:
            await self.alarm.sleep(await self._look())

    async def _look(self) -> float:
        """Run all steps once; return the seconds until the next run."""
        problems: dict[str, str] = {}
        self._next_end_in_s = math.inf
        staffing: dict[str, _Step] = {}
        if self.staffing is not None:
            staffing["learner_tasks"] = partial(self._staff, self.staffing)
        steps: dict[str, _Step] = {
            "heartbeat": self._beat,
            **staffing,
            "provisioned_concurrency": self._warm,
            "overdue_jobs": self._watch,
            "clients": self._watch_clients,
            "pings": self._ping,
            "learners": self._listen,
        }
        try:
            await self.book.catch_up()
        except Exception as error:
            problems["jobs"] = self._failed("jobs", error)
        else:
            for name, step in steps.items():
                try:
                    problem = await step(self.book.with_status(LIVE))
                except Exception as error:
                    # The task survives every error: one refusal must not leave the rest on.
                    problem = self._failed(name, error)
                if problem is not None:
                    problems[name] = problem
        for name in ("jobs", *steps):
            self.metrics.capacity_degraded.labels(part=name).set(name in problems)
        self.problems = problems
        warming = self.ready < self._asked
        every_s = min(self.every_s, self._ping_in_s, self._next_end_in_s)
        return min(_POLL_S, every_s) if warming else every_s

    async def _beat(self, jobs: Sequence[JobRecord]) -> None:
        if self.heartbeat is not None:
            self._announced = False
            now = self.now()
            await self.heartbeat.beat(at=now, until=allowed_until(jobs, self.rule, now))
            self._announced = True

    async def _warm(self, jobs: Sequence[JobRecord]) -> str | None:
        """Adjust provisioned concurrency; report if the account allows less."""
        found = await self.function.provisioned()
        configured, ready = found.asked, min(found.ready, found.asked)
        # Failed environments do not recover by themselves: the next run is early enough.
        self._asked, self.ready = ready if found.failed else configured, ready
        wanted = environments_wanted(jobs, self.rule, self.now())
        num = environments_allowed(wanted, self.rule)
        if num > configured:
            if not self._announced:
                raise HeartbeatError(_UNANNOUNCED)
            # Only growth needs the account's limit, so a quiet minute does not read it.
            unreserved = await self.function.unreserved_concurrency()
            num = environments_allowed(
                wanted, self.rule, configured=configured, unreserved=unreserved
            )
        clipped = wanted - num
        if num != configured or found.failed:
            _LOG.info(
                "provisioned concurrency changes",
                extra={"from": configured, "to": num, "clipped": clipped, "failed": found.failed},
            )
            self.book.require_ours()
            await self.function.provision(num)
            self.ready = min(ready, num)
            self._asked = self.ready if found.failed else num
        self.metrics.provisioned.set(num)
        self.metrics.provisioned_clipped.set(clipped)
        if found.failed:
            return (
                f"{configured - ready} environments did not start and are retried: {found.failed}"
            )
        if not clipped:
            return None
        return (
            f"{num} environments are warm, {clipped} more were wanted but exceed the account's "
            "limit; raise the Lambda quota 'Concurrent executions' (L-B99A9384)"
        )

    async def _ping(self, jobs: Sequence[JobRecord]) -> None:
        """Ping idle environments, and charge restarted ones to jobs.

        Concurrent jobs share environments: each restart is charged to one of them.
        """
        self._cold_pings += self.keep_alive.take_started()
        for record in jobs:
            num = min(self._cold_pings, kept_by_pings(record))
            if num and is_held(record, self.now()):
                # If the store refuses, they are charged at the next run.
                await self.book.change(record.job.job_id, partial(started_by_pings, num=num))
                self._cold_pings -= num
        self._cold_pings = 0
        self._ping_in_s = self.keep_alive.look(environments_to_keep(jobs, self.rule, self.now()))

    async def _listen(self, jobs: Sequence[JobRecord]) -> str | None:
        """Report why no learner takes the waiting jobs."""
        if self.staffing is not None:
            return self._troubles(jobs)
        waits: dict[LearnerKind, str] = {}
        for kind in MACHINE_KINDS:
            why, in_s = self._heard.why_waits(jobs, kind, self.now())
            self._next_end_in_s = min(self._next_end_in_s, in_s)
            if why is not None:
                waits[kind] = why
        self._waits = waits
        return "; ".join(f"{kind} jobs wait for {why}" for kind, why in waits.items()) or None

    def _troubles(self, jobs: Sequence[JobRecord]) -> str | None:
        """Report the trouble of learners that were started for jobs."""
        now = self.now()
        found = {
            record.job.job_id: self._heard.trouble_with(record.job.job_id, now)
            for record in jobs
            if not is_held(record, now)
        }
        troubles = {job_id: why for job_id, why in found.items() if why is not None}
        self._job_waits |= troubles
        return "; ".join(f"{job_id} waits for {why}" for job_id, why in troubles.items()) or None

    async def _staff(self, staffing: Staffing, jobs: Sequence[JobRecord]) -> str | None:
        """Adjust the learners' tasks; report what some jobs wait for."""
        done = await staffing.look(jobs, may_run=self._announced)
        self._job_waits = done.waits
        self._next_end_in_s = min(self._next_end_in_s, done.look_in_s)
        for kind, num in done.on.items():
            self.metrics.learners.labels(kind=kind).set(num)
        return None if self._announced else _UNANNOUNCED

    async def _watch(self, jobs: Sequence[JobRecord]) -> str | None:
        late = self._past(limits_at(jobs, self.rule, self.now()))
        for job_id in late:
            _LOG.warning("job reached a limit and keeps nothing on", extra={"job": job_id})
            await self.expire(job_id, self._is_over)
        if not late:
            return None
        return f"{len(late)} reached their time limit (NITRO_LONGEST_JOB_S) or budget, and end"

    def _is_over(self, record: JobRecord) -> bool:
        """Whether a job has reached its time limit or its budget by now."""
        now = self.now()
        return any(at <= now for at in limits_at([record], self.rule, now).values())

    async def _watch_clients(self, jobs: Sequence[JobRecord]) -> None:
        """End external jobs whose client is gone."""
        for job_id in self._past(clients_gone_at(jobs, self.rule)):
            _LOG.warning("external job's client is gone", extra={"job": job_id})
            await self.forsake(job_id)

    def _past(self, ends: Mapping[str, float]) -> list[str]:
        """Return the overdue jobs; note the time of the next end."""
        now = self.now()
        coming = (at - now for at in ends.values() if at > now)
        self._next_end_in_s = min(self._next_end_in_s, *coming, math.inf)
        return [job_id for job_id, at in ends.items() if at <= now]

    def _failed(self, name: str, error: Exception) -> str:
        self.metrics.capacity_failures.labels(part=name).inc()
        _LOG.warning(
            "capacity not adjusted",
            extra={"part": name, "why": str(error)},
            exc_info=None if isinstance(error, _EXPECTED) else error,
        )
        return _AGAIN
