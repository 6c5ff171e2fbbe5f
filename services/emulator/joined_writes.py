"""Responses that leave in one piece.

Uvicorn writes a response's head and its body one after the other, and the event loop sends each at
once. An invocation is three responses; sending is half of what they cost, and whoever receives them
is woken twice for each.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HELD_BYTES = 65536
"""From here on joining saves nothing, and the transport's own flow control is to see the bytes."""


class JoiningTransport(asyncio.Transport):
    """Sends what is written within one turn of the event loop as one, in the order written."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Write to `transport` from now on.

        Args:
            transport: Nobody else writes to it.
            loop: The one it belongs to.
        """
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[bytes | bytearray | memoryview[Any]] = []
        self._held_bytes = 0

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send it when the present turn is over, or at once with much that is held."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= MOST_HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        held = self._held
        self.discard()
        if len(held) == 1:
            self._transport.write(held[0])
        elif held:
            self._transport.writelines(held)

    def discard(self) -> None:
        """Forget what is held."""
        self._held, self._held_bytes = [], 0

    def close(self) -> None:
        """Send what is held, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self.discard()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it was closed, or is about to be."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """Return what the transport knows of its connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Let what comes in wait."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take in what waited."""
        self._transport.resume_reading()


class JoinedWrites(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, with the head and the body of a response in one piece."""

    transport: JoiningTransport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a connection."""
        super().connection_made(JoiningTransport(transport, self.loop))

    def eof_received(self) -> None:
        """Send what is held while that can be sent: the transport closes itself next."""
        self.transport.flush()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """End with a connection."""
        self.transport.discard()
        super().connection_lost(exc)
