"""The process: how it refuses to start, and how it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from services.scaler import app
from services.scaler.book.book import Book
from services.scaler.book.sqlite import SqliteTable
from tests.services.scaler.book.records import record, write
from tests.services.scaler.lambda_endpoint import LambdaEndpoint
from tests.services.scaler.running import TOKEN

REPOSITORY = Path(__file__).parents[3]


def settings(tmp_path: Path) -> dict[str, str]:
    return {
        "NITRO_TOKEN": TOKEN,
        "NITRO_DATABASE": str(tmp_path / "nitro.sqlite3"),
        "NITRO_PORT": "0",
    }


def start(
    tmp_path: Path, *, before: Sequence[str] = (), **environment: str
) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("NITRO_")}
    return subprocess.Popen(
        [*before, sys.executable, "-m", "services.scaler.app"],
        cwd=REPOSITORY,
        env={**clean, **settings(tmp_path), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Start a scaler that cannot start, in this process; return its message."""
    monkeypatch.setattr(app, "configure_logging", lambda _: None)  # the process's own
    monkeypatch.setattr(app, "allow_many_connections", lambda: None)

    def refused(**environment: str) -> str:
        for name in [name for name in os.environ if name.startswith("NITRO_")]:
            monkeypatch.delenv(name)
        for name, value in {**settings(tmp_path), **environment}.items():
            monkeypatch.setenv(name, value)
        assert app.main() == 2
        text = capsys.readouterr().err
        assert TOKEN not in text
        return text

    return refused


def wait_for_work(url: str) -> socket.socket:
    """Ask for a lease and leave the request open."""
    host, port = url.removeprefix("http://").split(":")
    body = b'{"learner_id": "l", "wait_s": 60}'
    head = (
        f"POST /v1/leases HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(head.encode() + body)
    return connection


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(tmp_path, NITRO_PORT=str(port))
        _, text = process.communicate(timeout=60)
    assert process.returncode == 2, text
    assert "Traceback" not in text
    assert f"cannot listen on 127.0.0.1:{port}" in text
    assert "NITRO_PORT" in text


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"NITRO_TOKEN": "", "NITRO_PORT": "many"}, "NITRO_PORT"),
        ({"NITRO_DATABASE": "/proc/nitro/x.sqlite3"}, "/proc/nitro/x.sqlite3"),
        ({"NITRO_TOKEN_FILE": "/none", "NITRO_TOKEN": ""}, "NITRO_TOKEN"),
        ({"NITRO_CACHE_URL": "http://secret@host"}, "cache URL"),
    ],
)
def test_what_is_wrong_is_named(
    refusal: Callable[..., str], environment: dict[str, str], named: str
) -> None:
    text = refusal(**environment)
    assert named in text
    assert "secret" not in text


def test_it_ends_in_order_while_a_learner_waits(tmp_path: Path, lambdas: LambdaEndpoint) -> None:
    process = start(tmp_path, NITRO_LAMBDA_ENDPOINT_URL=lambdas.url)
    assert process.stderr is not None
    with process.stderr as log:
        url = next(line for line in log if "scaler listens" in line).split("url='")[1].split("'")[0]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            assert http.get("/healthz").json() == {"status": "alive"}
            with wait_for_work(url) as learner:
                assert http.get("/readyz").status_code in (200, 503)
                process.send_signal(signal.SIGTERM)
                assert learner.recv(1000).startswith(b"HTTP/1.1 204 ")
            assert process.wait(30) == 0
        assert "Traceback" not in log.read()


def test_it_ends_when_another_scaler_writes_to_its_table_and_the_next_start_goes_on(
    tmp_path: Path, lambdas: LambdaEndpoint
) -> None:
    other = Book(SqliteTable(tmp_path / "nitro.sqlite3"), now=lambda: 0.0)
    asyncio.run(other.create(record("a")))
    process = start(tmp_path, NITRO_LAMBDA_ENDPOINT_URL=lambdas.url)
    assert process.stderr is not None
    with process.stderr as log:
        url = next(line for line in log if "scaler listens" in line).split("url='")[1].split("'")[0]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            asyncio.run(write(other, "a", status="stopping"))
            refused = http.post("/v1/jobs/a/stop")
            assert refused.status_code == 503
            assert process.wait(30) == 3
        assert "another scaler writes here" in log.read()
    asyncio.run(write(other, "a", status="queued"))
    other.close()
    again = Book(SqliteTable(tmp_path / "nitro.sqlite3"), now=lambda: 0.0)
    assert [each.version for each in again.with_status({"queued"})] == [2]
    again.close()


def test_silent_connections_do_not_keep_others_out(tmp_path: Path) -> None:
    """The usual soft limit of descriptors is no limit of clients: it is raised at the start."""
    limited = ("sh", "-c", 'ulimit -S -n 256; exec "$@"', "sh")
    with start(tmp_path, before=limited) as process, ExitStack() as silent:
        assert process.stderr is not None
        url = next(line for line in process.stderr if "scaler listens" in line)
        url = url.split("url='")[1].split("'")[0]
        host, port = url.removeprefix("http://").split(":")
        for _ in range(300):
            silent.enter_context(socket.create_connection((host, int(port)), timeout=20))
        assert httpx.get(f"{url}/healthz", timeout=20).json() == {"status": "alive"}
        process.kill()


def test_it_imports_neither_simulator_nor_arrays() -> None:
    script = (
        "import sys, services.scaler.app;"
        "print({'torch', 'numpy', 'gymnasium', 'mujoco'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
