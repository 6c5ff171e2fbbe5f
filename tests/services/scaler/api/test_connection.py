"""How much of a request's head is held, and for how long what nobody reads."""

import asyncio
import logging
import select
import socket
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from services.scaler.api import connection
from services.scaler.api.connection import KEEP_ALIVE_S, MAX_HEAD_BYTES, BoundedConnection
from tests.security.wire import request, send
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, serve
from tests.services.scaler.running import TOKEN, Scaler, run_scaler

PIECE = b"x" * 8192


def _json(body: bytes) -> tuple[str, str]:
    return f"Content-Length: {len(body)}", "Content-Type: application/json"


def piecewise(count: int) -> list[bytes]:
    head = b"GET /v1/jobs HTTP/1.1\r\nHost: scaler\r\n"
    return [head, b"X-Long: ", *([PIECE] * count)]


def test_a_head_without_end_is_refused(lasting_scaler: Scaler) -> None:
    answer = send(str(lasting_scaler.http.base_url), *piecewise(10_000))
    assert answer.status in (400, None), "refused, or hung up on while still sending"


def test_a_head_of_usual_size_is_read(lasting_scaler: Scaler) -> None:
    last = f"\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    answer = send(str(lasting_scaler.http.base_url), *piecewise(2), last)
    assert answer.status == 200


@pytest.mark.parametrize("count", [1, 30])
def test_requests_on_one_connection_are_counted_apart(lasting_scaler: Scaler, count: int) -> None:
    one = request("GET", "/healthz", f"X-Long: {'x' * (MAX_HEAD_BYTES // 4)}")
    last = request("GET", "/v1/jobs", "Connection: close", token=TOKEN)
    url = str(lasting_scaler.http.base_url)
    assert send(url, *([one] * count), last).status == 200


def test_a_client_that_does_not_read_is_hung_up_on(
    tmp_path: Path, lambdas: LambdaEndpoint, cache_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_WITHIN_S", 0.2)
    with run_scaler(tmp_path, lambdas, cache_url) as scaler, socket.socket() as client:
        url = scaler.http.base_url
        client.connect((url.host, url.port))
        client.sendall(request("GET", "/openapi.json") * 1000)
        # Neither readable nor writable is of interest: only that the other side has hung up.
        poll = select.poll()
        poll.register(client, 0)
        assert poll.poll(20_000), "still connected"


def test_a_client_that_reads_gets_every_answer(lasting_scaler: Scaler) -> None:
    """Also of requests that were sent before the first answer came."""
    url = lasting_scaler.http.base_url
    with socket.create_connection((url.host, url.port or 0), timeout=20) as client:
        last = request("GET", "/openapi.json", "Connection: close")
        client.sendall(request("GET", "/openapi.json") * 200 + last)
        received = b"".join(iter(lambda: client.recv(1 << 20), b""))
    assert received.count(b"HTTP/1.1 200 ") == 201


def test_a_client_closes_an_idle_connection_first() -> None:
    """A server that closes it just as it is used again would lose that request."""
    assert (httpx.Limits().keepalive_expiry or 0.0) < KEEP_ALIVE_S / 2


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: sca",
        request("POST", "/v1/jobs", "Content-Length: 9", token=TOKEN, body=b"{"),
        request("GET", "/healthz"),
        request("GET", "/healthz") + b"\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "one request", "an empty line after a request"],
)
def test_a_client_that_does_not_send_its_request_is_hung_up_on(
    tmp_path: Path,
    lambdas: LambdaEndpoint,
    cache_url: str,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
) -> None:
    monkeypatch.setattr(connection, "SENT_WITHIN_S", 0.2)
    monkeypatch.setattr(connection, "KEEP_ALIVE_S", 0.2)
    with run_scaler(tmp_path, lambdas, cache_url) as scaler, socket.socket() as client:
        url = scaler.http.base_url
        client.settimeout(20)
        client.connect((url.host, url.port))
        client.sendall(sent)
        with suppress(ConnectionResetError):
            while client.recv(65536):
                pass


def test_a_client_that_waits_for_an_answer_is_not_hung_up_on(
    tmp_path: Path, lambdas: LambdaEndpoint, cache_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SENT_WITHIN_S", 0.2)
    body = b'{"learner_id": "learner", "wait_s": 1}'
    wait = request("POST", "/v1/leases", *_json(body), token=TOKEN, body=body)
    last = request("GET", "/healthz", "Connection: close")
    with run_scaler(tmp_path, lambdas, cache_url) as scaler, socket.socket() as client:
        url = scaler.http.base_url
        client.settimeout(20)
        client.connect((url.host, url.port))
        # A part of the next request comes with the first: the rest only after a while.
        client.sendall(wait + last[:10])
        client.sendall(last[10:])
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 204 ")
    assert b"HTTP/1.1 200 " in received


@pytest.mark.parametrize("leaves", [False, True])
def test_an_answer_that_takes_longer_than_the_end_waits_is_cut_off_without_a_traceback(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], leaves: bool
) -> None:
    asked, left = threading.Event(), threading.Event()

    async def never_answers(scope: Scope, receive: Receive, _send: Send) -> None:
        if scope["type"] == "http":
            await receive()
            asked.set()
            assert (await receive())["type"] == "http.disconnect"
            left.set()
            await asyncio.Event().wait()

    with socket.socket() as client:
        client.settimeout(20)
        with serve(never_answers, http=BoundedConnection, drain_s=1) as address:
            url = httpx.URL(address)
            client.connect((url.host, url.port))
            client.sendall(request("GET", "/"))
            assert asked.wait(20)
            if leaves:
                client.close()
                assert left.wait(20)
            caplog.set_level(logging.ERROR, "uvicorn.error")
        if not leaves:
            with suppress(ConnectionResetError):
                assert client.recv(65536) == b""
    (line,) = capsys.readouterr().err.splitlines()
    assert "Cancel 1 running task(s)" in line
