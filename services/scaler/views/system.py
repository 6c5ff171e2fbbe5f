"""The system's configuration and load."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import get_args

from services.scaler.book.book import Book
from services.scaler.capacity.reconciler import CapacityReconciler
from services.scaler.launching.launches import Launches
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.off_loop import OffLoop
from services.scaler.recent import Recent
from services.scaler.settings import Settings
from services.scaler.views.processes import MachineProcesses
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts.jobs import JobStatus
from shared.contracts.views.system import (
    CacheView,
    ConcurrencyView,
    FunctionView,
    Role,
    SystemView,
    WarmView,
)

_CACHE_KEPT_S = 2.0
"""How long the cache's answer is kept: a silent cache takes seconds to detect."""


def nitro_version() -> str:
    """Return Nitro's version."""
    try:
        return version("nitro-rl")
    except PackageNotFoundError:
        return "unknown"


@dataclass(kw_only=True, eq=False)
class SystemLook:
    """Looks at the system."""

    settings: Settings
    book: Book
    cache: TrajectoryCache
    cache_thread: OffLoop
    threads: OffLoop
    quota: ConcurrencyQuota
    launches: Launches
    capacity: CapacityReconciler
    now: Callable[[], float]
    started_at: float
    processes: MachineProcesses | None = None
    """Set on one machine."""
    live: bool = True
    """Whether there is a running system, or only the records of runs."""

    def __post_init__(self) -> None:
        """Begin without a look at the cache."""
        self._cache: Recent[None, CacheView | None] = Recent(
            get=lambda _: self._look_at_cache(), fails_with=CacheError, ttl_s=_CACHE_KEPT_S
        )

    async def view(self, role: Role) -> SystemView:
        """Return the view of a role."""
        settings, counts = self.settings, self.book.counts()
        statuses: tuple[JobStatus, ...] = get_args(JobStatus)
        return SystemView(
            version=nitro_version(),
            role=role,
            live=self.live,
            started_at=self.started_at,
            now=self.now(),
            problems=self.capacity.problems,
            concurrency=ConcurrencyView(
                limit=self.quota.known,
                reserved=settings.lambda_reserved_concurrency,
                in_flight=self.launches.flights.in_flight(),
            ),
            warm=WarmView(
                ready=self.capacity.ready,
                most=settings.provisioned_concurrency,
                pinged=settings.keep_alive,
            ),
            cache=await self._cache.of(None),
            function=FunctionView(
                name=settings.lambda_function,
                memory_mb=settings.lambda_memory_mb,
                timeout_s=settings.lambda_timeout_s,
            ),
            jobs={status: counts.get(status, 0) for status in statuses},
            learner_instance=settings.learner_instance,
            price_table=settings.cost_basis().prices.name,
            clock=settings.ledger_clock,
            artifacts=settings.artifact_location,
            processes=await self.threads.run(self.processes.look) if self.processes else (),
        )

    async def _look_at_cache(self) -> CacheView | None:
        if not self.live:
            return None
        try:
            used_bytes, kind = await self.cache_thread.run(self.cache.memory)
        except CacheError:
            return None
        return CacheView(
            used_mb=used_bytes / 1024**2, most_mb=self.settings.cache_memory_mb, version=kind
        )
