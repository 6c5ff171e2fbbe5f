"""HTTP/1.1 connections to one server, on the loop, kept open between requests.

A round has up to a thousand concurrent requests. With a C parser directly on the socket, one costs
a quarter of the CPU time of a thread per request (docs/decisions/058). Nothing is retried here: the
caller decides.
"""

import asyncio
import random
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

Headers = Sequence[tuple[str, str]]
_CONNECTING = 64
"""Concurrent connection attempts: a TLS handshake takes milliseconds of the loop, so a thousand at
once would all be late.
"""
_FIRST_FINAL = 200
"""Informational statuses are below this."""
_IDLE_S = 20.0
"""How long to keep an idle connection: most servers close it after a minute or more."""
_LOOK_UP_S = 5.0
"""How long to cache the server's resolved addresses."""
_MAX_ANSWER_BYTES = 8 * 2**20
"""Largest answer with its headers; Lambda's replies have at most 6 MB."""


class UnreachableError(OSError):
    """There was no connection, so nothing was sent."""


class BrokenConnectionError(OSError):
    """The connection broke, or sent garbage, before the end of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A server's answer."""

    status: int
    headers: dict[str, str]
    """By lower-case names."""
    body: bytes


class Connections:
    """A pool with one connection per concurrent request to a server."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float,
        read_timeout_s: float,
        ca_file: str | None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: Any address of the server.
            connect_timeout_s: Longest wait for a connection.
            read_timeout_s: Longest wait for an answer.
            ca_file: Certificates that those of the server are checked against; None takes the
                system's.
            may_send: Asked at the last moment, when a connection is ready.
        """
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._tls = ssl.create_default_context(cafile=ca_file) if secure else None
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._may_send = may_send
        self._idle: deque[_Connection] = deque()
        """Most recently used last."""
        self._connecting = asyncio.Semaphore(_CONNECTING)
        self._addresses: asyncio.Future[list[str]] | None = None
        self._looked_up_at = 0.0
        self._closed = False

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        """Send a request and wait for the whole answer.

        Raises:
            UnreachableError: Nothing was sent.
            BrokenConnectionError: The connection broke.
            TimeoutError: There was no answer in time.
        """
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self._authority}",
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in headers),
        ]
        head = "\r\n".join(lines).encode("latin-1")
        connection = await self._connection()
        try:
            if not self._may_send():
                raise UnreachableError("this scaler launches nothing more")
            async with asyncio.timeout(self._read_timeout_s):
                answer = await connection.exchange(head + b"\r\n\r\n" + body)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._read_timeout_s:g} s") from None
        finally:
            # Also if the caller was cancelled: a later answer would be unclaimed.
            if connection.can_go_on and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()
            while self._idle and not self._idle[0].can_go_on:
                self._idle.popleft().close()
        return answer

    def close(self) -> None:
        """Close idle connections now, and busy ones once they are idle."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _connection(self) -> "_Connection":
        connection = self._reusable()
        if connection is not None:
            return connection
        async with self._connecting:
            connection = self._reusable()  # a connection may have become free meanwhile
            if connection is not None:
                return connection
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    return await self._connect()
            except TimeoutError:
                why = f"no connection to {self._authority} within {self._connect_timeout_s:g} s"
                raise UnreachableError(why) from None
            except OSError as error:
                raise UnreachableError(f"no connection to {self._authority}: {error}") from error

    def _reusable(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.can_go_on and not connection.has_ended():
                return connection
            connection.close()
        return None

    async def _connect(self) -> "_Connection":
        """Connect to an address of the server; with several, a silent one gets half the time."""
        loop = asyncio.get_running_loop()
        *others, last = await self._look_up()
        for address in others:
            try:
                async with asyncio.timeout(self._connect_timeout_s / 2 / len(others)):
                    return await self._connect_to(address)
            except OSError:
                self._looked_up_at = loop.time() - _LOOK_UP_S  # it may have moved
        return await self._connect_to(last)

    async def _connect_to(self, address: str) -> "_Connection":
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection,
            address,
            self._port,
            ssl=self._tls,
            server_hostname=self._host if self._tls else None,
        )
        return connection

    async def _look_up(self) -> list[str]:
        """Return the server's addresses, resolved once for all callers within seconds."""
        loop = asyncio.get_running_loop()
        old = self._addresses is None or loop.time() >= self._looked_up_at + _LOOK_UP_S
        if self._addresses is None or (self._addresses.done() and old):
            self._looked_up_at = loop.time()
            self._addresses = asyncio.ensure_future(_addresses_of(self._host, self._port))
        try:
            known = await asyncio.shield(self._addresses)
        except OSError:
            self._addresses = None
            raise
        # Connections spread over the addresses; the system's preferred family comes first.
        preferred = ":" in known[0]
        return sorted(known, key=lambda each: ((":" in each) != preferred, random.random()))


async def _addresses_of(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._length = 0
        self._in_body = False
        self._open = True
        self._used_at = self._loop.time()

    @property
    def can_go_on(self) -> bool:
        """Whether it can send a request."""
        fresh = self._loop.time() - self._used_at < _IDLE_S
        return self._open and fresh and self._answer is None

    def has_ended(self) -> bool:
        """Whether the server has closed it, or sent unsolicited bytes, unnoticed by a busy loop."""
        if self._transport.is_closing():
            return True
        looked = select.poll()
        looked.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(looked.poll(0))

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and return its answer."""
        self._answer = self._loop.create_future()
        self._length = 0
        self._transport.write(request)
        answer = await self._answer
        self._answer, self._used_at = None, self._loop.time()
        return answer

    def close(self) -> None:
        """Close it at once."""
        self._open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Read a chunk of an answer."""
        if self._answer is None:
            self.close()  # nobody asked
            return
        self._length += len(data)
        if self._length > _MAX_ANSWER_BYTES:
            self._break(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"the answer is no HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._open = False
        sized = "content-length" in self._headers or "transfer-encoding" in self._headers
        if exc is None and self._in_body and not sized:
            self.on_message_complete()  # it ends with the connection
        self._break(f"the connection was closed before the answer had come: {exc or 'no reason'}")

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._headers, self._body, self._in_body = {}, bytearray(), False
        if self._answer is None or self._answer.done():
            self._open = False  # nobody asked

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Begin the body."""
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """Receive a chunk of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """End an answer."""
        self._in_body, status = False, self._parser.get_status_code()
        if status < _FIRST_FINAL:
            return
        self._open = self._open and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            answer = Answer(status=status, headers=self._headers, body=bytes(self._body))
            self._answer.set_result(answer)

    def _break(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokenConnectionError(why))
