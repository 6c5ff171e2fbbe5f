"""The scaler's parts, wired once: the only place that constructs clients."""

import time
from collections.abc import Callable
from typing import get_args

from services.scaler.api.readiness import Readiness
from services.scaler.capacity.reconciler import Alarm, ThreadAlarm
from services.scaler.capacity.wiring import build_reconciler, longest_job_s
from services.scaler.jobs.admission import Admission, EnvironmentCatalogue
from services.scaler.jobs.checking import CheckDesk, CheckParts
from services.scaler.jobs.finishing import FinishParts, FinishService
from services.scaler.jobs.leases import LeaseService, WorkSignal
from services.scaler.jobs.rescaling import ScalingService
from services.scaler.jobs.service import JobParts, JobService
from services.scaler.launching.invoker import PooledInvoker, RetryRule
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.launches import Launches
from services.scaler.launching.lost_launches import LostLaunches, LostLaunchParts
from services.scaler.launching.notice_board import CacheBoard
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending, warm_at_most
from services.scaler.money.budget import RoundPricing
from services.scaler.rounds.service import RoundParts, RoundService
from services.scaler.settings import Settings
from services.scaler.store.base import Store
from services.scaler.store.dynamodb import DynamoDbStore
from services.scaler.store.sqlite import SqliteStore
from shared.artifacts.opening import open_artifacts
from shared.cache.client import TrajectoryCache
from shared.contracts.jobs import JobStatus
from shared.service.aws_credentials import process_credentials

_STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)


class Components:
    """Everything the routes use, and its beginning and end."""

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], float] = time.time,
        alarm: Alarm | None = None,
    ) -> None:
        """Construct every part; tests bring a clock, and an alarm that keeps to it.

        Raises:
            StoreError: The database or table cannot be used.
            CacheError: The cache URL is malformed.
            ArtifactError: The place of the artifacts is malformed.
        """
        self._settings = settings
        self._basis = settings.cost_basis()
        self._spending = Spending(basis=self._basis, clock=settings.ledger_clock)
        self.board = CacheBoard(_cache(settings))
        self.store = _store(settings)
        self.metrics = Metrics()
        self.bell = WorkSignal()
        self._function = LambdaFunction(settings)
        self._quota = ConcurrencyQuota(
            self._function.concurrency_limit, ttl_s=settings.account_limit_ttl_s
        )
        self.readiness = Readiness(
            {
                "cache": self.board.ping,
                "lambda_endpoint": self._function.concurrency_limit,
                "store": self.store.check,
            },
            every_s=settings.readiness_every_s,
            now=time.monotonic,
        )
        self._invoker = self._build_invoker()
        self.launches = self._build_launches()
        self.lost = LostLaunches(
            LostLaunchParts(
                store=self.store,
                launches=self.launches,
                board=self.board,
                oldest_invocation_s=self._function.oldest_invocation_s,
                now=now,
                function_timeout_s=settings.lambda_timeout_s,
            )
        )
        self.capacity = build_reconciler(
            settings,
            store=self.store,
            function=self._function,
            metrics=self.metrics,
            expire=lambda job_id, why: self.jobs.expire(job_id, why),
            now=now,
            alarm=alarm or ThreadAlarm(),
            exhausted_at=self._spending.exhausted_at,
        )
        self.leases = LeaseService(
            self.store,
            ttl_s=settings.lease_ttl_s,
            heartbeat_every_s=settings.heartbeat_every_s,
            now=now,
            spending=self._spending,
        )
        admission = Admission(
            EnvironmentCatalogue(self._function, ttl_s=self._settings.environment_ttl_s),
            self._quota,
            cache_memory_mb=settings.cache_memory_mb,
        )
        self.checks = CheckDesk(self._check_parts(admission, now))
        self.jobs = JobService(self._job_parts(admission, now))
        self.scaling = ScalingService(self.store, now=now)
        self.rounds = RoundService(self._round_parts(now))
        self.finishing = FinishService(self._finish_parts(now))

    def start(self) -> None:
        """Take up what an earlier process left."""
        self.lost.watch_open_rounds()
        self.rounds.adopt_orphans()
        self.leases.extend_all()
        self.checks.start()
        self.capacity.start()

    def close(self) -> bool:
        """Wait for what is in flight, then let go of everything; return whether all of it ended."""
        landed = self._invoker.close(wait_s=self._settings.shutdown_wait_s)
        landed = self.checks.close() and landed
        self.capacity.close(wait_s=self._settings.lambda_connect_timeout_s)
        if landed:
            self._function.close()
        self.board.close()
        self.store.close()
        return landed

    def render_metrics(self) -> bytes:
        """Return metrics, the number of jobs counted now."""
        for status in _STATUSES:
            self.metrics.jobs.labels(status=status).set(self.store.count((status,)))
        return self.metrics.render()

    def _build_invoker(self) -> PooledInvoker:
        settings = self._settings
        return PooledInvoker(
            self._function,
            RetryRule(
                throttle_retries=settings.throttle_retries,
                first_pause_s=settings.throttle_pause_s,
                timeout_s=settings.lambda_timeout_s,
            ),
            pool_size=settings.invoke_pool_size,
            limit=lambda: self._quota.known,
        )

    def _build_launches(self) -> Launches:
        settings = self._settings
        return Launches(
            self._invoker,
            self.board,
            self.metrics,
            clock=settings.ledger_clock,
            memory_mb=settings.lambda_memory_mb,
            timeout_s=settings.lambda_timeout_s,
        )

    def _pricing(self, num_warm: int) -> RoundPricing:
        return RoundPricing(
            basis=warm_at_most(self._basis, num_warm),
            deadline_slack_s=self._settings.deadline_slack_s,
            learner_allowance_s=self._settings.learner_allowance_s,
        )

    def _queued(self) -> None:
        self.bell.ring()
        self.capacity.reconcile()

    def _check_parts(self, admission: Admission, now: Callable[[], float]) -> CheckParts:
        return CheckParts(
            store=self.store,
            admission=admission,
            pricing=self._pricing,
            now=now,
            spending=self._spending,
            on_queued=self._queued,
        )

    def _job_parts(self, admission: Admission, now: Callable[[], float]) -> JobParts:
        return JobParts(
            store=self.store,
            admission=admission,
            board=self.board,
            launches=self.launches,
            files=open_artifacts(
                self._settings.artifact_location, region=self._settings.lambda_region
            ),
            pricing=self._pricing,
            now=now,
            spending=self._spending,
            on_checking=self.checks.take_up,
            on_queued=self._queued,
            on_finished=self.capacity.reconcile,
        )

    def _round_parts(self, now: Callable[[], float]) -> RoundParts:
        settings = self._settings
        return RoundParts(
            store=self.store,
            launches=self.launches,
            board=self.board,
            quota=self._quota,
            metrics=self.metrics,
            warm=lambda: self.capacity.ready,
            now=now,
            basis=self._basis,
            clock=settings.ledger_clock,
            deadline_slack_s=settings.deadline_slack_s,
            learner_allowance_s=settings.learner_allowance_s,
            quorum_share=settings.quorum_share,
            max_attempts=settings.max_attempts,
            longest_job_s=longest_job_s(settings),
            on_rewarmed=self.capacity.reconcile,
        )

    def _finish_parts(self, now: Callable[[], float]) -> FinishParts:
        return FinishParts(
            store=self.store,
            launches=self.launches,
            now=now,
            spending=self._spending,
            learner_instance=self._settings.learner_instance,
            finish_wait_s=self._settings.finish_wait_s,
            on_finished=self.capacity.reconcile,
        )


def _cache(settings: Settings) -> TrajectoryCache:
    return TrajectoryCache.connect(
        settings.cache_url.get_secret_value(),
        timeout_s=5.0,
        credentials=settings.cache_credentials(process_credentials()),
    )


def _store(settings: Settings) -> Store:
    if settings.store == "sqlite" or settings.table is None:
        return SqliteStore(settings.database)
    store = DynamoDbStore.connect(settings.table, region=settings.lambda_region)
    store.check()
    return store
