"""HTTP connections on the loop, at a server that behaves as each test tells it."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from botocore.httpsession import get_cert_path

from services.scaler.launching.connections import (
    BrokenConnectionError,
    Connections,
    UnreachableError,
)
from tests.services.scaler.lambda_endpoint import LambdaEndpoint
from tests.shared.tls_front import tls_front

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Some: Thing\r\n\r\nok"


@asynccontextmanager
async def connected(serve: Serve, *, read_timeout_s: float = 10.0) -> AsyncIterator[Connections]:
    """Yield connections to a server that does this with each of them."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = Connections(
        f"http://127.0.0.1:{port}",
        connect_timeout_s=10.0,
        read_timeout_s=read_timeout_s,
        ca_file=None,
    )
    try:
        yield made
    finally:
        made.close()
        server.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    """Read a request with a body of four bytes."""
    return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(4)


async def test_one_connection_serves_requests_one_after_the_other_and_more_serve_them_at_once() -> (
    None
):
    seen: list[bytes] = []
    num_connections, both = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_connections
        num_connections += 1
        while True:
            try:
                seen.append(await request(reader))
            except asyncio.IncompleteReadError:
                break
            if len(seen) > 3:
                both.set()
            if len(seen) > 2:
                await both.wait()
            writer.write(OK)
        writer.close()

    async with connected(serve) as connections:
        for _ in range(2):
            answer = await connections.send("POST", "/a?b=c", [("X-Own", "1")], b"body")
            assert (answer.status, answer.headers["x-some"], answer.body) == (200, "Thing", b"ok")
        assert num_connections == 1
        at_once = (connections.send("POST", "/", [], b"body") for _ in range(2))
        assert [answer.status for answer in await asyncio.gather(*at_once)] == [200, 200]
        assert num_connections == 2
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert head.endswith(b"X-Own: 1")
    assert body == b"body"


@pytest.mark.parametrize("closes", [b"Connection: close\r\n", b""])
async def test_a_connection_that_the_server_closes_is_not_used_again(closes: bytes) -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK.replace(b"X-Some: Thing\r\n", closes))
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with connected(serve) as connections:
        for _ in range(3):
            gone.clear()
            assert (await connections.send("POST", "/", [], b"body")).body == b"ok"
            await gone.wait()
            await asyncio.sleep(0.01)  # its end has to arrive


async def test_a_connection_that_was_closed_while_the_loop_was_busy_is_not_used_again() -> None:
    closed = threading.Event()

    def accept(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(OK)
            closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=accept, args=(listener,))
        server.start()
        connections = Connections(
            f"http://127.0.0.1:{listener.getsockname()[1]}",
            connect_timeout_s=10.0,
            read_timeout_s=10.0,
            ca_file=None,
        )
        for _ in range(2):
            closed.clear()
            assert (await connections.send("POST", "/", [], b"body")).body == b"ok"
            assert closed.wait(10)  # the loop sees nothing of it
        server.join()
        connections.close()


async def test_a_connection_that_idles_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_connections
        num_connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await request(reader):
                writer.write(OK)
        writer.close()

    monkeypatch.setattr("services.scaler.launching.connections._IDLE_S", 0.0)
    async with connected(serve) as connections:
        for wanted in (1, 2):
            assert (await connections.send("POST", "/", [], b"body")).body == b"ok"
            assert num_connections == wanted


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\nbusy", 502, b"busy"),
        (b"HTTP/1.0 200 OK\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
    ],
)
async def test_answers_may_end_with_the_connection_and_come_after_others_that_announce_them(
    sent: bytes, status: int, body: bytes
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(sent)
        writer.close()

    async with connected(serve) as connections:
        answer = await connections.send("POST", "/", [], b"body")
    assert (answer.status, answer.body) == (status, body)


async def test_an_answer_without_end_is_cut_off() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"x" * 2**20)
                await writer.drain()

    async with connected(serve) as connections:
        with pytest.raises(BrokenConnectionError, match="more than 8388608 bytes"):
            await connections.send("POST", "/", [], b"body")


async def test_a_name_is_looked_up_once_and_few_connections_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, looked_up = asyncio.get_running_loop(), list[str]()
    all_in, at_once, most, arrived = asyncio.Event(), 0, 0, 0

    async def look_up(host: str, port: int, **_: object) -> list[object]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def connect(self: Connections, address: str) -> object:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        made = await real(self, address)
        at_once -= 1
        return made

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        await request(reader)
        arrived += 1
        if arrived == 200:
            all_in.set()
        await all_in.wait()
        writer.write(OK)
        writer.close()

    real = Connections._connect_to
    async with connected(serve) as connections:
        connections._host = "lambda.example"
        monkeypatch.setattr(loop, "getaddrinfo", look_up)
        monkeypatch.setattr(Connections, "_connect_to", connect)
        answers = await asyncio.gather(
            *(connections.send("POST", "/", [], b"body") for _ in range(200))
        )
    assert [answer.status for answer in answers] == [200] * 200
    assert looked_up == ["lambda.example"]
    assert most == 64


@pytest.mark.parametrize("sent", [b"", OK[:-1], b"HTTP/1.1 2", b"\x16\x03\x01 no HTTP\r\n\r\n"])
async def test_an_answer_that_does_not_come_whole_is_a_broken_connection(sent: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(sent)
        writer.close()

    async with connected(serve) as connections:
        with pytest.raises(BrokenConnectionError):
            await connections.send("POST", "/", [], b"body")


async def test_an_answer_that_comes_too_late_is_nobodys() -> None:
    num_connections, late = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_connections
        num_connections += 1
        await request(reader)
        if num_connections == 1:
            await late.wait()
        writer.write(OK.replace(b"ok", b"%d!" % num_connections))
        writer.close()

    async with connected(serve, read_timeout_s=2.0) as connections:
        with pytest.raises(TimeoutError, match=r"no answer within 2 s"):
            await connections.send("POST", "/", [], b"body")
        late.set()
        assert (await connections.send("POST", "/", [], b"body")).body == b"2!"


async def test_a_connection_that_is_busy_when_they_are_closed_ends_with_its_answer() -> None:
    asked, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        await go_on.wait()
        writer.write(OK)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        ended.set()
        writer.close()

    async with connected(serve) as connections:
        sent = asyncio.create_task(connections.send("POST", "/", [], b"body"))
        await asked.wait()
        connections.close()
        go_on.set()
        assert (await sent).body == b"ok"
        async with asyncio.timeout(60.0):
            await ended.wait()


async def test_where_nobody_listens_nothing_was_sent() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with connected(serve) as connections:
        pass  # the server is gone from here on
    with pytest.raises(UnreachableError, match=r"no connection to 127\.0\.0\.1:"):
        await connections.send("POST", "/", [], b"body")


async def test_a_certificate_is_checked_against_those_that_are_given(
    lambdas: LambdaEndpoint, tmp_path: Path
) -> None:
    port = int(lambdas.url.rpartition(":")[2])
    with tls_front(tmp_path, host="127.0.0.1", port=port) as front:

        def connections(ca_file: str | None) -> Connections:
            return Connections(
                f"https://127.0.0.1:{front.port}",
                connect_timeout_s=10.0,
                read_timeout_s=10.0,
                ca_file=ca_file,
            )

        own = connections(str(front.certificate))
        answer = await own.send("GET", "/2016-08-19/account-settings/", [], b"")
        assert b"AccountLimit" in answer.body
        own.close()
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await connections(get_cert_path(True)).send("GET", "/", [], b"")
