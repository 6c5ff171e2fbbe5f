"""HTTP answers that leave in one piece.

uvicorn writes an answer's head and its body one after the other, and each is sent at once: two
system calls here, and two packets, of which the first wakes a client that can do nothing with it.
Three answers make up one invocation.
"""

import asyncio
from typing import Any, TypeAlias

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Buffer: TypeAlias = "bytes | bytearray | memoryview[Any]"


class JoiningTransport(asyncio.Transport):
    """Sends all that one callback of the event loop writes when that callback is done.

    Of much the writer must hear at once that it should pause: that does not wait.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Write to `transport`, which belongs to `loop`."""
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[Buffer] = []
        self._held_bytes = 0

    def write(self, data: Buffer) -> None:
        """Send something soon."""
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HIGH_WATER_LIMIT:
            self._send()

    def close(self) -> None:
        """Close the connection once all is sent."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._take()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Say whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Hand out no more data."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Hand out data again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._transport.get_extra_info(name, default)

    def _send(self) -> None:
        held = self._take()
        # A client may have gone since it was written: uvloop's transport raises an error then.
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def _take(self) -> bytes:
        held = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        return held


class JoiningProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol over a joining transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take up a connection."""
        super().connection_made(JoiningTransport(transport, self.loop))
