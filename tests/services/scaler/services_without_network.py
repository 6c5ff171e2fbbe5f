"""The scaler's services for simulations: real, but for network, threads and time."""

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from services.scaler.book.book import Book
from services.scaler.gradients.service import GradientService
from services.scaler.jobs.admission import Admission
from services.scaler.jobs.catalogue import EnvironmentCatalogue
from services.scaler.jobs.changes import JobChanges
from services.scaler.jobs.finishing import FinishService
from services.scaler.jobs.leases import LeaseService
from services.scaler.jobs.service import JobService
from services.scaler.launching.execution import Execution
from services.scaler.launching.invoker import ActorInvoker, Invoker
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.launches import Launches
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing
from services.scaler.off_loop import OffLoop
from services.scaler.rounds.service import RoundService
from shared.artifacts.local import LocalArtifacts
from shared.cache.client import TrajectoryCache
from shared.cache.gradients import GradientCache
from shared.contracts.gradients import GradientReport, GradientTask
from tests.services.scaler.lambda_endpoint import HOPPER

TIMEOUT_S = 60.0
SLACK_S = 10.0
ALLOWANCE_S = 60.0
P = ParamSpec("P")
T = TypeVar("T")
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)
_TURNS = 12
"""Of the loop, after which nothing happens any more that waits for no time."""


def do(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns once all that it began has happened, too."""

    async def settled() -> T:
        done = await work
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return done

    return _LOOP.run_until_complete(settled())


def settle() -> None:
    """Let what is about to happen happen."""
    do(asyncio.sleep(0))


def forget_tasks() -> None:
    """End everything that still waits for something, as with a process."""
    for task in asyncio.all_tasks(_LOOP):
        task.cancel()
    settle()


class Inline(OffLoop):
    """Calls that are made at once."""

    def __init__(self) -> None: ...

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)


class SilentCache(TrajectoryCache):
    """A trajectory cache that nobody reads, and that is nowhere."""

    def __init__(self) -> None: ...

    def announce_failure(self, *_: object, **__: object) -> None: ...

    def request_cancel(self, *_: object, **__: object) -> None: ...

    def forget_rounds(self, *_: object, **__: object) -> None: ...


class NoGradientCache(GradientCache):
    """Where gradients would be, if anybody read them."""

    def __init__(self) -> None: ...

    def announce_lost_gradient(self, *_: object, **__: object) -> None: ...


class NoGradients(Invoker[GradientTask, GradientReport]):
    """Learner functions, which nobody asks."""

    def __init__(self) -> None: ...


class HopperFunction(LambdaFunction):
    """The actor image, which is asked about its environment alone."""

    def __init__(self) -> None: ...

    async def invoke(self, payload: bytes) -> Execution:
        return Execution(kind="done", payload=HOPPER.model_dump_json().encode())


class CheckpointsKept(LocalArtifacts):
    """Run folders that are nowhere, but have a checkpoint."""

    def names(self, job_id: str, folder: str) -> list[str]:
        return ["000001"]


class Services:
    """The scaler's services as they are wired for real, but for network, threads and time."""

    now = 0.0
    book: Book

    def wire(
        self,
        invoker: ActorInvoker,
        spending: Spending,
        *,
        lease_ttl_s: float,
        warm: Callable[[], int] = lambda: 0,
        functions: Invoker[GradientTask, GradientReport] | None = None,
    ) -> None:
        """Start them on the store; what was under way before is forgotten."""
        forget_tasks()

        async def limit() -> int:
            return 1000

        quota = ConcurrencyQuota(limit, ttl_s=1e9)
        pricing = RoundPricing(
            basis=spending.basis, deadline_slack_s=SLACK_S, learner_allowance_s=ALLOWANCE_S
        )
        metrics = Metrics()
        self.launches = Launches(invoker, SilentCache(), Inline(), metrics, spending)
        self.gradients = GradientService(
            book=self.book,
            invoker=NoGradients() if functions is None else functions,
            cache=NoGradientCache(),
            cache_thread=Inline(),
            now=self._clock,
            spending=spending,
            slack_s=SLACK_S,
        )
        self.rounds = RoundService(
            gradients=self.gradients,
            book=self.book,
            launches=self.launches,
            cache=SilentCache(),
            cache_thread=Inline(),
            quota=quota,
            metrics=metrics,
            warm=warm,
            now=self._clock,
            spending=spending,
            pricing=pricing,
            quorum_share=0.5,
            max_attempts=2,
            preview_wait_s=0.0,
            longest_job_s=1e9,
            on_given_again=lambda _: None,
        )
        self._wire_jobs(spending, pricing, quota, lease_ttl_s=lease_ttl_s)

    def _wire_jobs(
        self,
        spending: Spending,
        pricing: RoundPricing,
        quota: ConcurrencyQuota,
        *,
        lease_ttl_s: float,
    ) -> None:
        changes = JobChanges(book=self.book, launches=self.launches, gradients=self.gradients)
        self.leases = LeaseService(
            self.book,
            ttl_s=lease_ttl_s,
            heartbeat_every_s=1.0,
            now=self._clock,
            spending=spending,
            change=changes.change,
        )
        catalogue = EnvironmentCatalogue(HopperFunction(), ttl_s=300.0)
        self.jobs = JobService(
            book=self.book,
            admission=Admission(catalogue, quota, lambda: [], Inline(), cache_memory_mb=1000),
            cache=SilentCache(),
            cache_thread=Inline(),
            threads=Inline(),
            changes=changes,
            files=CheckpointsKept(Path()),
            pricing=pricing,
            now=self._clock,
            spending=spending,
            on_checking=lambda _: None,
        )
        self.finishing = FinishService(
            launches=self.launches,
            changes=changes,
            now=self._clock,
            spending=spending,
            finish_wait_s=0.0,
        )

    def _clock(self) -> float:
        return self.now
