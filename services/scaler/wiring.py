"""The scaler's parts, wired once: the only place that constructs clients."""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

from anyio.to_thread import current_default_thread_limiter

from services.scaler.book.book import Book
from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Table
from services.scaler.capacity.decision import LIVE, CapacityRule, is_held
from services.scaler.capacity.ecs_tasks import EcsTasks, LearnerTasks
from services.scaler.capacity.heartbeat import Heartbeat
from services.scaler.capacity.keep_alive import KeepAlive
from services.scaler.capacity.reconciler import Alarm, CapacityReconciler
from services.scaler.capacity.staffing import Staffing
from services.scaler.capacity.tasks import TaskRule
from services.scaler.gradients.service import GradientService
from services.scaler.jobs.admission import Admission
from services.scaler.jobs.catalogue import EnvironmentCatalogue
from services.scaler.jobs.changes import JobChanges
from services.scaler.jobs.checking import CheckDesk
from services.scaler.jobs.finishing import FinishService
from services.scaler.jobs.leases import LeaseService
from services.scaler.jobs.service import JobService
from services.scaler.launching.invoker import Invoker, RetryRule
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.launches import Launches
from services.scaler.launching.lost_launches import LostLaunches
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.launching.tasks import GRADIENTS, ROLLOUTS
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing
from services.scaler.off_loop import OffLoop
from services.scaler.rounds.service import RoundService
from services.scaler.settings import Settings
from services.scaler.views.curves import CurveStretches
from services.scaler.views.estimating import Estimates
from services.scaler.views.listing import JobListing
from services.scaler.views.logs import CloudWatchLogs, FileLogs, Logs, NoLogs
from services.scaler.views.processes import MachineProcesses
from services.scaler.views.readiness import Readiness
from services.scaler.views.system import SystemLook
from shared.artifacts.opening import open_artifacts
from shared.cache.client import TrajectoryCache
from shared.cache.gradients import GradientCache
from shared.contracts.jobs import Job, JobStatus
from shared.service.aws_credentials import process_credentials

_LOG = logging.getLogger(__name__)
_CONTROL_THREADS = 3
"""For Lambda's and ECS's control planes, and credentials."""
_FILE_THREADS = 3
"""For buckets and logs, which may be slow: nothing that keeps jobs alive waits for them."""
_VIEW_THREADS = 3
"""That read and lay out pages for people."""
_LAST_WRITES_S = 5.0
"""How long the end waits for what has ended to be booked."""
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

        A book that is brought is used in place of the one that the settings name. What is not
        `live` shows what is in it, and starts nothing.

        Raises:
            StoreError: The database or table cannot be used.
            CacheError: The cache URL is malformed.
            ArtifactError: The place of the artifacts is malformed.
        """
        self.now = now
        self.settings = settings
        self._live = live
        self.book = book or Book(_table(settings), now=now)
        self._control = OffLoop("control-plane", _CONTROL_THREADS)
        self.file_threads = OffLoop("files", _FILE_THREADS)
        self._heart = OffLoop("heartbeat", 1)
        self._cache_thread = OffLoop("cache", 1)  # it has one connection
        self._wire_stores(settings)
        self._wire_launching(settings)
        self._wire_jobs(settings)
        self._wire_capacity(settings, alarm or Alarm())
        self._wire_rounds(settings)
        self._wire_views(settings)

    def _wire_stores(self, settings: Settings) -> None:
        url = settings.cache_url.get_secret_value()
        credentials = settings.cache_credentials(process_credentials())
        self.cache = TrajectoryCache(url, timeout_s=5.0, credentials=credentials)
        self._gradient_cache = GradientCache(url, timeout_s=5.0, credentials=credentials)
        self.metrics = Metrics()
        basis = settings.cost_basis()
        self._spending = Spending(basis=basis, clock=settings.ledger_clock, num_held=self._num_held)
        self._pricing = RoundPricing(
            basis=basis,
            deadline_slack_s=settings.deadline_slack_s,
            learner_allowance_s=settings.learner_allowance_s,
        )

    def _wire_launching(self, settings: Settings) -> None:
        self._function = LambdaFunction(settings, self._control, may_invoke=self._may_invoke)
        for problem in self._function.problems.values():
            _LOG.warning(problem)
        self._quota = ConcurrencyQuota(
            self._function.concurrency_limit, ttl_s=settings.account_limit_ttl_s
        )
        self.readiness = Readiness(
            {
                "cache": partial(self._cache_thread.run, self.cache.ping),
                "lambda_endpoint": self._function.concurrency_limit,
                "store": partial(self.book.look, self.book.check),
            },
            every_s=settings.readiness_every_s,
            now=time.monotonic,
        )
        self._invoker = Invoker(
            self._function,
            _retries(settings, settings.lambda_timeout_s),
            ROLLOUTS,
            most=settings.invoke_pool_size,
            limit=lambda: self._quota.known,
            cold_starts_per_s=settings.cold_starts_per_s,
        )
        # No connection is opened before there is a job that wants gradients.
        name = settings.gradient_function
        self._gradient_function = LambdaFunction(
            settings, self._control, name=name, may_invoke=self._may_invoke
        )
        self._gradient_invoker = Invoker(
            self._gradient_function,
            _retries(settings, settings.gradient_timeout_s),
            GRADIENTS,
            most=settings.gradient_pool_size,
            cold_starts_per_s=settings.cold_starts_per_s,
        )
        self.gradients = GradientService(
            book=self.book,
            invoker=self._gradient_invoker,
            cache=self._gradient_cache,
            cache_thread=self._cache_thread,
            now=self.now,
            spending=self._spending,
            slack_s=settings.deadline_slack_s,
        )
        self.launches = Launches(
            self._invoker, self.cache, self._cache_thread, self.metrics, self._spending
        )
        self.lost = LostLaunches(
            book=self.book,
            launches=self.launches,
            cache=self.cache,
            cache_thread=self._cache_thread,
            oldest_invocation_s=self._function.oldest_invocation_s,
            now=self.now,
            function_timeout_s=settings.lambda_timeout_s,
        )

    def _wire_jobs(self, settings: Settings) -> None:
        catalogue = EnvironmentCatalogue(self._function, ttl_s=settings.environment_ttl_s)
        self.files = open_artifacts(settings.artifact_location, region=settings.lambda_region)
        admission = Admission(
            catalogue,
            self._quota,
            partial(self.book.with_status, LIVE),
            self.file_threads,
            cache_memory_mb=settings.cache_memory_mb,
            has_gpu=settings.has_gpu,
            cache_node=settings.cache_node if settings.starts_learners else None,
            side_by_side=settings.starts_learners,
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
            cache_thread=self._cache_thread,
            threads=self.file_threads,
            changes=changes,
            files=self.files,
            pricing=self._pricing,
            now=self.now,
            spending=self._spending,
            on_checking=self.checks.take_up,
        )
        self.finishing = FinishService(
            book=self.book,
            launches=self.launches,
            changes=changes,
            now=self.now,
            spending=self._spending,
            learners=settings.learners,
            finish_wait_s=settings.finish_wait_s,
        )

    def _wire_capacity(self, settings: Settings, alarm: Alarm) -> None:
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
            function=self._function,
            staffing=self._staffing(settings, rule),
            heartbeat=_heartbeat(settings, self._heart),
            metrics=self.metrics,
            now=self.now,
            expire=self.jobs.expire,
            forsake=self.jobs.forsake,
            keep_alive=KeepAlive(
                invoker=self._invoker,
                launches=self.launches,
                metrics=self.metrics,
                every_s=settings.ping_every_s if settings.keep_alive else math.inf,
                timeout_s=settings.lambda_timeout_s,
            ),
            every_s=settings.reconcile_every_s,
            alarm=alarm,
        )
        self.book.on_demand_changed = self.capacity.reconcile

    def _may_invoke(self) -> bool:
        """Whether the jobs are ours: another scaler's actors would be doubled."""
        return not self.book.fenced

    def _num_held(self) -> int:
        now = self.now()
        return sum(is_held(record, now) for record in self.book.with_status(LIVE))

    def _staffing(self, settings: Settings, capacity: CapacityRule) -> Staffing | None:
        if settings.ecs_cluster is None or settings.ecs_security_group is None:
            return None
        families = settings.ecs_families
        deployed = LearnerTasks(
            cluster=settings.ecs_cluster,
            families=families,
            subnets={"cpu": settings.ecs_subnets, "gpu": settings.ecs_gpu_subnets},
            security_group=settings.ecs_security_group,
            gpu_provider=settings.ecs_gpu_provider,
        )
        most = {"cpu": settings.most_cpu_learners, "gpu": settings.most_gpu_learners}
        return Staffing(
            book=self.book,
            ecs=EcsTasks(
                deployed,
                region=settings.lambda_region,
                timeout_s=settings.lambda_connect_timeout_s,
            ),
            threads=self._control,
            rule=TaskRule(
                most={kind: most[kind] for kind in families},
                longest_wait_s=settings.learner_wait_s,
            ),
            capacity=capacity,
            concurrency=lambda: self._quota.known,
            now=self.now,
            expire=self.jobs.expire,
        )

    def _wire_rounds(self, settings: Settings) -> None:
        self.rounds = RoundService(
            book=self.book,
            launches=self.launches,
            cache=self.cache,
            cache_thread=self._cache_thread,
            quota=self._quota,
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

    def _wire_views(self, settings: Settings) -> None:
        self.stretches = CurveStretches(book=self.book, so_far=self.launches.so_far)
        self.listing = JobListing(book=self.book, launches=self.launches, shown=self.shown)
        self.logs = _logs(settings, self.file_threads)
        self.system = SystemLook(
            settings=settings,
            book=self.book,
            cache=self.cache,
            cache_thread=self._cache_thread,
            threads=self.file_threads,
            quota=self._quota,
            launches=self.launches,
            capacity=self.capacity,
            now=self.now,
            started_at=self.now(),
            processes=MachineProcesses(os.getppid()) if settings.show_processes else None,
            live=self._live,
        )

    def shown(self, job: Job) -> Job:
        """Return a job with what it waits for."""
        return self.capacity.shown(self.lost.shown(job))

    async def start(self) -> None:
        """Take up what an earlier process left."""
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
        ended = all(
            await asyncio.gather(
                self._invoker.close(wait_s=wait_s), self._gradient_invoker.close(wait_s=wait_s)
            )
        )
        if not ended:
            _LOG.warning("actors are still in flight; their outcome will be billed at its worst")
        last_s = _LAST_WRITES_S if ended else 0.0
        await asyncio.gather(
            self.launches.flights.finish(wait_s=last_s),
            self.gradients.flights.finish(wait_s=last_s),
        )
        await self.capacity.close()
        self._function.close()
        self._gradient_function.close()
        for threads in (self._control, self.file_threads, self._heart, self._cache_thread):
            threads.close()
        self.cache.close()
        self._gradient_cache.close()
        self.book.close()

    @property
    def problems(self) -> dict[str, str]:
        """Degraded parts, although the scaler works."""
        return self.capacity.problems | self._function.problems

    def render_metrics(self) -> bytes:
        """Return metrics, the number of jobs counted now."""
        counts = self.book.counts()
        for status in _STATUSES:
            self.metrics.jobs.labels(status=status).set(counts.get(status, 0))
        return self.metrics.render()


def _retries(settings: Settings, timeout_s: float) -> RetryRule:
    return RetryRule(
        throttled_s=settings.throttled_s,
        first_pause_s=settings.throttle_pause_s,
        timeout_s=timeout_s,
    )


def _table(settings: Settings) -> Table:
    if settings.store == "sqlite" or settings.table is None:
        return SqliteTable(settings.database)
    return DynamoDbTable.connect(settings.table, region=settings.lambda_region)


def _logs(settings: Settings, threads: OffLoop) -> Logs:
    if settings.log_groups:
        return CloudWatchLogs.connect(settings.log_groups, threads, region=settings.lambda_region)
    return NoLogs() if settings.logs is None else FileLogs(settings.logs, threads)


def _heartbeat(settings: Settings, threads: OffLoop) -> Heartbeat | None:
    if not settings.starts_learners or settings.table is None:
        return None
    return Heartbeat(
        threads,
        table=settings.table,
        region=settings.lambda_region,
        timeout_s=settings.lambda_connect_timeout_s,
    )
