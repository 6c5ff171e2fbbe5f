"""Invokers that have ended with the test."""

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from services.scaler.launching.invoker import ActorInvoker, RetryRule
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.room import Room
from services.scaler.launching.tasks import ROLLOUTS
from services.scaler.settings import Settings
from tests.services.scaler.lambda_endpoint import LambdaEndpoint
from tests.services.scaler.launching.running_invoker import Running, StartInvoker
from tests.services.scaler.services_without_network import Inline


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs beside the test."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    for _ in range(3):  # what was closed ends
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), made).result(10)
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture
def function(lambdas: LambdaEndpoint, loop: asyncio.AbstractEventLoop) -> Iterator[LambdaFunction]:
    made = LambdaFunction(Settings(auth="disabled", lambda_endpoint_url=lambdas.url), Inline())
    yield made
    loop.call_soon_threadsafe(made.close)


@pytest.fixture
def start_invoker(
    function: LambdaFunction, loop: asyncio.AbstractEventLoop
) -> Iterator[StartInvoker]:
    """Start invokers that have ended with the test."""
    started: list[Running] = []

    def start(
        *,
        most: int = 2,
        limit: Callable[[], int | None] = lambda: None,
        cold_starts_per_s: float = math.inf,
        **rule: Any,
    ) -> Running:
        usual = {"throttled_s": 0.001, "first_pause_s": 0.001, "timeout_s": 60.0}
        made = RetryRule(**{**usual, **rule})
        invoker = ActorInvoker(
            function,
            made,
            ROLLOUTS,
            Room(most=most, limit=limit, cold_starts_per_s=cold_starts_per_s),
            seed=0,
        )
        started.append(Running(loop, invoker))
        return started[-1]

    yield start
    assert all(invoker.close(wait_s=10) for invoker in started)


@pytest.fixture
def invoker(start_invoker: StartInvoker) -> Running:
    return start_invoker(most=8, throttled_s=10.0)
