"""HTTP/1.1 connections to one server, on the loop, kept open between requests.

A round is up to a thousand requests at a time. With a parser in C and nothing between it and the
socket, one costs a quarter of the processor time that it costs on a thread of its own
(docs/decisions/058). Nothing is sent again here: whoever asks decides about that.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

Headers = Sequence[tuple[str, str]]


class UnreachableError(OSError):
    """There is no connection, so nothing was sent."""


class BrokenConnectionError(OSError):
    """The connection ended, or made no sense, before all of an answer had come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answers."""

    status: int
    headers: dict[str, str]
    """By names in small letters."""
    body: bytes


class Connections:
    """As many connections to a server as there are requests at a time."""

    def __init__(
        self, url: str, *, connect_timeout_s: float, read_timeout_s: float, ca_file: str | None
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: Any address of the server.
            connect_timeout_s: Longest wait for a connection.
            read_timeout_s: Longest wait for an answer.
            ca_file: Certificates that those of the server are checked against; None takes the
                system's.
        """
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._tls = ssl.create_default_context(cafile=ca_file) if secure else None
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._idle: list[_Connection] = []

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
            async with asyncio.timeout(self._read_timeout_s):
                answer = await connection.exchange(head + b"\r\n\r\n" + body)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._read_timeout_s:g} s") from None
        finally:
            # Also where whoever asked was cancelled: what comes then is nobody's answer.
            if connection.can_go_on:
                self._idle.append(connection)
            else:
                connection.close()
        return answer

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _connection(self) -> "_Connection":
        while self._idle:
            connection = self._idle.pop()
            if connection.can_go_on:
                return connection
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            why = f"no connection to {self._authority} within {self._connect_timeout_s:g} s"
            raise UnreachableError(why) from None
        except OSError as error:
            raise UnreachableError(f"no connection to {self._authority}: {error}") from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._open = True

    @property
    def can_go_on(self) -> bool:
        """Whether it can take a request."""
        return self._open and self._answer is None

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and return its answer."""
        self._answer = self._loop.create_future()
        self._transport.write(request)
        answer = await self._answer
        self._answer = None
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
        """Read a part of an answer."""
        if self._answer is None:
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(f"the answer is no HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._open = False
        self._break(f"the connection was closed before the answer had come: {exc or 'no reason'}")

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._headers, self._body = {}, bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """End an answer."""
        self._open = self._open and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            answer = Answer(
                status=self._parser.get_status_code(),
                headers=self._headers,
                body=bytes(self._body),
            )
            self._answer.set_result(answer)

    def _break(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokenConnectionError(why))
