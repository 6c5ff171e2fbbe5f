"""The scaler's parts, wired once."""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

import psutil
from anyio.to_thread import current_default_thread_limiter

from services.scaler.book.book import Book
from services.scaler.capacity.decision import LIVE, CapacityRule, is_held
from services.scaler.capacity.keep_alive import KeepAlive
from services.scaler.capacity.reconciler import Alarm, CapacityReconciler
from services.scaler.capacity.staffing import Staffing
from services.scaler.capacity.tasks import TaskRule
from services.scaler.clients import Clients
from services.scaler.gradients.service import GradientService
from services.scaler.jobs.admission import Admission
from services.scaler.jobs.catalogue import EnvironmentCatalogue
from services.scaler.jobs.changes import JobChanges
from services.scaler.jobs.checking import CheckDesk
from services.scaler.jobs.finishing import FinishService
from services.scaler.jobs.leases import LeaseService
from services.scaler.jobs.replay import LearnerMemory
from services.scaler.jobs.service import JobService
from services.scaler.launching.launches import Launches
from services.scaler.launching.lost_launches import LostLaunches
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing
from services.scaler.rounds.service import RoundService
from services.scaler.settings import Settings
from services.scaler.views.bills import Bills
from services.scaler.views.curves import CurveStretches
from services.scaler.views.estimating import Estimates
from services.scaler.views.listing import JobListing
from services.scaler.views.processes import MachineProcesses
from services.scaler.views.readiness import Readiness
from services.scaler.views.system import SystemLook
from shared.contracts.jobs import Job, JobStatus

_LOG = logging.getLogger(__name__)
_VIEW_THREADS = 3
"""Threads that read and render pages for people."""
_LAST_WRITES_S = 5.0
"""How long shutdown waits for ended launches to be booked."""
_STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)


class Components:
    """Everything the routes use, and its beginning and end."""

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], float] = time.time,
        alarm: Alarm | None = None,
        book: Book | None = None,
        live: bool = True,
    ) -> None:
        """Construct every part; tests bring a clock, and an alarm that keeps to it.

        A given book replaces the one in the settings. If it is not `live`, the scaler only shows
        the jobs in the book, and starts nothing.

        Raises:
            StoreError: The database or table cannot be used.
            CacheError: The cache URL is malformed.
            ArtifactError: The place of the artifacts is malformed.
        """
        self.now = now
        self.settings = settings
        self._live = live
        self._clients = clients = Clients(settings, now=now, book=book)
        self.book, self.cache, self.files = clients.book, clients.cache, clients.files
        self.file_threads, self.logs = clients.file_threads, clients.logs
        self.metrics = Metrics()
        basis = settings.cost_basis()
        self._spending = Spending(basis=basis, clock=settings.ledger_clock, num_held=self._num_held)
        self._pricing = RoundPricing(
            basis=basis,
            deadline_slack_s=settings.deadline_slack_s,
            learner_allowance_s=settings.learner_allowance_s,
        )
        self._wire_launching(settings, clients)
        self._wire_jobs(settings, clients)
        self._wire_capacity(settings, clients, alarm or Alarm())
        self._wire_rounds(settings, clients)
        self._wire_views(settings, clients)

    def _wire_launching(self, settings: Settings, clients: Clients) -> None:
        self.gradients = GradientService(
            book=self.book,
            invoker=clients.gradient_invoker,
            cache=clients.gradient_cache,
            cache_thread=clients.cache_thread,
            now=self.now,
            spending=self._spending,
            slack_s=settings.deadline_slack_s,
        )
        self.launches = Launches(
            clients.invoker, self.cache, clients.cache_thread, self.metrics, self._spending
        )
        self.lost = LostLaunches(
            book=self.book,
            launches=self.launches,
            cache=self.cache,
            cache_thread=clients.cache_thread,
            oldest_invocation_s=clients.function.oldest_invocation_s,
            now=self.now,
            function_timeout_s=settings.lambda_timeout_s,
        )

    def _wire_jobs(self, settings: Settings, clients: Clients) -> None:
        admission = Admission(
            EnvironmentCatalogue(clients.function, ttl_s=settings.environment_ttl_s),
            clients.quota,
            partial(self.book.with_status, LIVE),
            self.file_threads,
            cache_memory_mb=settings.cache_memory_mb,
            has_gpu=settings.has_gpu,
            cache_node=settings.cache_node if settings.starts_learners else None,
            side_by_side=settings.starts_learners,
            learner_memory=_learner_memory(settings),
            files=self.files,
        )
        changes = JobChanges(book=self.book, launches=self.launches, gradients=self.gradients)
        self.leases = LeaseService(
            self.book,
            ttl_s=settings.lease_ttl_s,
            heartbeat_every_s=settings.heartbeat_every_s,
            now=self.now,
            spending=self._spending,
            change=changes.change,
            cache_url=settings.cache_url.get_secret_value(),
        )
        self.checks = CheckDesk(
            book=self.book,
            admission=admission,
            pricing=self._pricing,
            now=self.now,
            spending=self._spending,
        )
        self.estimates = Estimates(
            book=self.book, admission=admission, pricing=self._pricing, threads=self.file_threads
        )
        self.jobs = JobService(
            book=self.book,
            admission=admission,
            cache=self.cache,
            cache_thread=clients.cache_thread,
            threads=self.file_threads,
            changes=changes,
            files=self.files,
            pricing=self._pricing,
            now=self.now,
            spending=self._spending,
            on_checking=self.checks.take_up,
        )
        self.finishing = FinishService(
            launches=self.launches,
            changes=changes,
            now=self.now,
            spending=self._spending,
            finish_wait_s=settings.finish_wait_s,
        )

    def _wire_capacity(self, settings: Settings, clients: Clients, alarm: Alarm) -> None:
        rule = CapacityRule(
            provisioned=settings.provisioned_concurrency,
            starts_learner=settings.starts_learners,
            longest_job_s=settings.allowed_job_s,
            reserved=settings.lambda_reserved_concurrency,
            spent_at=self._spending.spent_at,
            client_grace_s=settings.client_grace_s,
        )
        self.capacity = CapacityReconciler(
            book=self.book,
            rule=rule,
            function=clients.function,
            staffing=self._staffing(settings, clients, rule),
            heartbeat=clients.heartbeat,
            metrics=self.metrics,
            now=self.now,
            expire=self.jobs.expire,
            forsake=self.jobs.forsake,
            keep_alive=KeepAlive(
                invoker=clients.invoker,
                launches=self.launches,
                metrics=self.metrics,
                every_s=settings.ping_every_s if settings.keep_alive else math.inf,
                timeout_s=settings.lambda_timeout_s,
            ),
            every_s=settings.reconcile_every_s,
            alarm=alarm,
        )
        self.book.on_demand_changed = self.capacity.reconcile

    def _staffing(
        self, settings: Settings, clients: Clients, capacity: CapacityRule
    ) -> Staffing | None:
        if clients.ecs is None:
            return None
        most = {"cpu": settings.most_cpu_learners, "gpu": settings.most_gpu_learners}
        return Staffing(
            book=self.book,
            ecs=clients.ecs,
            threads=clients.control,
            rule=TaskRule(
                most={kind: most[kind] for kind in settings.ecs_families},
                longest_wait_s=settings.learner_wait_s,
            ),
            capacity=capacity,
            concurrency=lambda: clients.quota.known,
            now=self.now,
            give_up=self.jobs.give_up,
        )

    def _wire_rounds(self, settings: Settings, clients: Clients) -> None:
        self.rounds = RoundService(
            book=self.book,
            launches=self.launches,
            cache=self.cache,
            cache_thread=clients.cache_thread,
            quota=clients.quota,
            metrics=self.metrics,
            warm=lambda: self.capacity.ready,
            now=self.now,
            spending=self._spending,
            pricing=self._pricing,
            quorum_share=settings.quorum_share,
            max_attempts=settings.max_attempts,
            preview_wait_s=settings.finish_wait_s,
            longest_job_s=settings.allowed_job_s,
            on_given_again=self.lost.watch,
            gradients=self.gradients,
        )

    def _wire_views(self, settings: Settings, clients: Clients) -> None:
        self.readiness = Readiness(
            {
                "cache": partial(clients.cache_thread.run, self.cache.ping),
                "lambda_endpoint": clients.function.concurrency_limit,
                "store": partial(self.book.look, self.book.check),
            },
            every_s=settings.readiness_every_s,
            now=time.monotonic,
        )
        self.bills = Bills(
            book=self.book,
            launches=self.launches,
            now=self.now,
            spending=self._spending,
            learners=settings.learners,
        )
        self.stretches = CurveStretches(book=self.book, so_far=self.launches.so_far)
        self.listing = JobListing(book=self.book, launches=self.launches, shown=self.shown)
        self.system = SystemLook(
            settings=settings,
            book=self.book,
            cache=self.cache,
            cache_thread=clients.cache_thread,
            threads=self.file_threads,
            quota=clients.quota,
            launches=self.launches,
            capacity=self.capacity,
            now=self.now,
            started_at=self.now(),
            processes=MachineProcesses(os.getppid()) if settings.show_processes else None,
            live=self._live,
        )

    def shown(self, job: Job) -> Job:
        """Return a job with its reason to wait."""
        return self.capacity.shown(self.lost.shown(job))

    async def start(self) -> None:
        """Continue an earlier process's work."""
        current_default_thread_limiter().total_tokens = _VIEW_THREADS
        if not self._live:
            return
        await self.lost.watch_open_rounds()
        await self.rounds.adopt_orphans()
        await self.gradients.adopt_orphans()
        await self.leases.extend_all()
        self.checks.start()
        self.capacity.start()

    async def close(self) -> None:
        """Wait for launches in flight, then close everything."""
        await self.checks.close()
        await self.lost.close()
        wait_s = 0.0 if self.book.fenced else self.settings.shutdown_wait_s
        ended = await self._clients.finish(wait_s=wait_s)
        if not ended:
            _LOG.warning("actors are still in flight; their outcome will be billed at its worst")
        last_s = _LAST_WRITES_S if ended else 0.0
        await asyncio.gather(
            self.launches.flights.finish(wait_s=last_s),
            self.gradients.flights.finish(wait_s=last_s),
        )
        await self.capacity.close()
        self._clients.close()

    @property
    def problems(self) -> dict[str, str]:
        """Degraded parts, although the scaler works."""
        return self.capacity.problems | self._clients.function.problems

    def render_metrics(self) -> bytes:
        """Return metrics, the number of jobs counted now."""
        counts = self.book.counts()
        for status in _STATUSES:
            self.metrics.jobs.labels(status=status).set(counts.get(status, 0))
        return self.metrics.render()

    def _num_held(self) -> int:
        now = self.now()
        return sum(is_held(record, now) for record in self.book.with_status(LIVE))


def _learner_memory(settings: Settings) -> LearnerMemory:
    """Return the learners' memory: that of their tasks on AWS, otherwise this machine's."""
    if settings.starts_learners:
        gb = settings.cpu_learner_memory_gb, settings.gpu_learner_memory_gb
        return LearnerMemory(cpu_mib=1024 * gb[0], gpu_mib=1024 * gb[1], on_aws=True)
    here = psutil.virtual_memory().total / 1024**2
    return LearnerMemory(cpu_mib=here, gpu_mib=here, on_aws=False)
