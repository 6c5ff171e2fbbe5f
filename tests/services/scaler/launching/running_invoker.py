"""An invoker on a loop that runs beside the test."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from services.scaler.launching.execution import Execution
from services.scaler.launching.invoker import ActorInvoker, Awaited
from services.scaler.launching.tasks import RolloutOutcome
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask

_ALWAYS = Awaited()
T = TypeVar("T")


def task(actor_index: int = 0, **env_kwargs: str) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id="job",
        round=1,
        attempt=0,
        actor_index=actor_index,
        policy_version=1,
        env=EnvironmentRef(env_id="Hopper-v5", env_kwargs=dict(env_kwargs)),
        steps=256,
        seed=7,
    )


class Sink:
    """Collects outcomes from the loop's thread."""

    def __init__(self) -> None:
        self.outcomes: list[RolloutOutcome] = []
        self._changed = threading.Condition()

    def __call__(self, outcome: RolloutOutcome) -> None:
        with self._changed:
            self.outcomes.append(outcome)
            self._changed.notify_all()

    def wait(self, count: int) -> list[RolloutOutcome]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outcomes) >= count, 10)
        return sorted(self.outcomes, key=lambda o: o.task.actor_index)


class Running:
    """An invoker on that loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, invoker: ActorInvoker) -> None:
        self._loop, self._invoker = loop, invoker

    def submit(
        self, tasks: Iterable[RolloutTask], sink: Sink, awaited: Awaited = _ALWAYS
    ) -> concurrent.futures.Future[None]:
        async def told(outcome: RolloutOutcome) -> None:
            sink(outcome)

        return self._begin(self._invoker.run(tasks, told, awaited))

    def ping(self, num: int, on_end: Callable[[Execution], None]) -> None:
        self._begin(self._invoker.ping(num, 0.0, on_end)).result(10)

    def close(self, *, wait_s: float) -> bool:
        return self._begin(self._invoker.close(wait_s=wait_s)).result(20)

    def _begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


StartInvoker = Callable[..., Running]


def run_one(invoker: Running) -> RolloutOutcome:
    sink = Sink()
    invoker.submit([task()], sink)
    return sink.wait(1)[0]
