"""The scaler's clients of other systems: table, cache, functions, files, logs and tasks."""

import asyncio
import logging
from collections.abc import Callable

from services.scaler.book.book import Book
from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Table
from services.scaler.capacity.ecs_tasks import EcsTasks, LearnerTasks
from services.scaler.capacity.heartbeat import Heartbeat
from services.scaler.launching.invoker import Invoker, RetryRule
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.launching.room import Room
from services.scaler.launching.tasks import GRADIENTS, ROLLOUTS
from services.scaler.off_loop import OffLoop
from services.scaler.settings import Settings
from services.scaler.views.logs import CloudWatchLogs, FileLogs, Logs, NoLogs
from shared.artifacts.opening import open_artifacts
from shared.cache.client import TrajectoryCache
from shared.cache.gradients import GradientCache
from shared.service.aws_credentials import process_credentials

_LOG = logging.getLogger(__name__)
_CONTROL_THREADS = 3
"""For Lambda's and ECS's control planes, and credentials."""
_FILE_THREADS = 3
"""For buckets and logs, which may be slow: nothing that keeps jobs alive waits for them."""
_CACHE_TIMEOUT_S = 5.0


class Clients:
    """One client of each, and the threads of those that block."""

    def __init__(
        self, settings: Settings, *, now: Callable[[], float], book: Book | None = None
    ) -> None:
        """Open the table, unless its `book` is given; the others connect when first used.

        Raises:
            StoreError: The database or table cannot be used.
            CacheError: The cache URL is malformed.
            ArtifactError: The place of the artifacts is malformed.
        """
        self.book = book or Book(_table(settings), now=now)
        self.control = OffLoop("control-plane", _CONTROL_THREADS)
        self.file_threads = OffLoop("files", _FILE_THREADS)
        self.cache_thread = OffLoop("cache", 1)  # it has one connection
        self._heart = OffLoop("heartbeat", 1)
        url = settings.cache_url.get_secret_value()
        credentials = settings.cache_credentials(process_credentials())
        self.cache = TrajectoryCache(url, timeout_s=_CACHE_TIMEOUT_S, credentials=credentials)
        self.gradient_cache = GradientCache(
            url, timeout_s=_CACHE_TIMEOUT_S, credentials=credentials
        )
        self.files = open_artifacts(settings.artifact_location, region=settings.lambda_region)
        self.logs = _logs(settings, self.file_threads)
        self.ecs = _ecs(settings)
        """None where learners are not started for jobs."""
        self.heartbeat = _heartbeat(settings, self._heart)
        """None without a dead-man switch."""
        self._open_functions(settings)

    def _open_functions(self, settings: Settings) -> None:
        self.function = LambdaFunction(settings, self.control, may_invoke=self._may_invoke)
        for problem in self.function.problems.values():
            _LOG.warning(problem)
        self.quota = ConcurrencyQuota(
            self.function.concurrency_limit, ttl_s=settings.account_limit_ttl_s
        )
        self.invoker = Invoker(
            self.function,
            _retries(settings, settings.lambda_timeout_s),
            ROLLOUTS,
            Room(
                most=settings.invoke_pool_size,
                limit=lambda: self.quota.known,
                cold_starts_per_s=settings.cold_starts_per_s,
            ),
        )
        self._gradient_function = LambdaFunction(
            settings, self.control, name=settings.gradient_function, may_invoke=self._may_invoke
        )
        self.gradient_invoker = Invoker(
            self._gradient_function,
            _retries(settings, settings.gradient_timeout_s),
            GRADIENTS,
            Room(most=settings.gradient_pool_size, cold_starts_per_s=settings.cold_starts_per_s),
        )

    async def finish(self, *, wait_s: float) -> bool:
        """Invoke nothing more and wait for what is in flight; return whether all has ended."""
        ended = await asyncio.gather(
            self.invoker.close(wait_s=wait_s), self.gradient_invoker.close(wait_s=wait_s)
        )
        return all(ended)

    def close(self) -> None:
        """Close all connections and threads, those of ECS and the heartbeat with their users."""
        self.function.close()
        self._gradient_function.close()
        for threads in (self.control, self.file_threads, self._heart, self.cache_thread):
            threads.close()
        self.cache.close()
        self.gradient_cache.close()
        self.book.close()

    def _may_invoke(self) -> bool:
        """Whether the jobs are ours: another scaler's actors would be doubled."""
        return not self.book.fenced


def _table(settings: Settings) -> Table:
    if settings.store == "sqlite" or settings.table is None:
        return SqliteTable(settings.database)
    return DynamoDbTable.connect(settings.table, region=settings.lambda_region)


def _logs(settings: Settings, threads: OffLoop) -> Logs:
    if settings.log_groups:
        return CloudWatchLogs.connect(settings.log_groups, threads, region=settings.lambda_region)
    return NoLogs() if settings.logs is None else FileLogs(settings.logs, threads)


def _ecs(settings: Settings) -> EcsTasks | None:
    if settings.ecs_cluster is None or settings.ecs_security_group is None:
        return None
    return EcsTasks(
        LearnerTasks(
            cluster=settings.ecs_cluster,
            families=settings.ecs_families,
            subnets={"cpu": settings.ecs_subnets, "gpu": settings.ecs_gpu_subnets},
            security_group=settings.ecs_security_group,
            gpu_provider=settings.ecs_gpu_provider,
        ),
        region=settings.lambda_region,
        timeout_s=settings.lambda_connect_timeout_s,
    )


def _heartbeat(settings: Settings, threads: OffLoop) -> Heartbeat | None:
    if not settings.starts_learners or settings.table is None:
        return None
    return Heartbeat(
        threads,
        table=settings.table,
        region=settings.lambda_region,
        timeout_s=settings.lambda_connect_timeout_s,
    )


def _retries(settings: Settings, timeout_s: float) -> RetryRule:
    return RetryRule(
        throttled_s=settings.throttled_s,
        first_pause_s=settings.throttle_pause_s,
        timeout_s=timeout_s,
    )
