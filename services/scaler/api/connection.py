"""One client's connection: uvicorn's, with bounds on memory and time.

uvicorn's fast parser buffers everything before a token is checked: an endless head, or thousands of
pipelined requests. It also waits for ever for a client to send a request, or to read its answers.
Bodies have their own bound, in `services.scaler.api.guard`; docs/decisions/025 has the reasons.
"""

import asyncio
import struct
from socket import SO_LINGER, SOL_SOCKET

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES = 64 * 1024
"""Largest request line and headers, beyond the chunk in which they start; a proxy allows far less.
"""
MAX_AHEAD_BYTES = 512 * 1024
"""Most bytes that a client may send while it waits for an answer; twice the size of one read."""
READ_WITHIN_S = 30.0
"""How long a client may leave a large answer unread."""
SENT_WITHIN_S = 30.0
"""How long a client may take to send a request, and to begin its first one."""
KEEP_ALIVE_S = 75
"""Keep-alive time between requests: longer than that of clients and proxies. A server that closes a
connection just as its client reuses it loses the request.
"""
_PIECE_BYTES = 2048
"""Bytes for the parser at a time: it accepts all requests in them, of at least 18 bytes each."""
_AT_ONCE = struct.pack("ii", 1, 0)


class BoundedConnection(HttpToolsProtocol):
    """Processes input as answers are read; disconnects clients that send or wait without end."""

    _head_bytes = 0
    _head_goes_on = False
    """Whether the current chunk began inside a head, and is still inside it."""
    _in_head = False
    _ending = False
    """Whether the process is ending: it does not wait for clients that do not read."""
    _unread: asyncio.TimerHandle | None = None
    _unsent: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Open a connection."""
        super().connection_made(transport)
        self.timeout_keep_alive = KEEP_ALIVE_S
        self._ahead = bytearray()
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Receive a client's bytes; buffer those that arrive while it waits for an answer."""
        if self._unsent is None and not self._waited_for:
            self._expect_request()  # even an empty line cancels uvicorn's time-out
        self._ahead += data
        self._parse()
        if len(self._ahead) > MAX_AHEAD_BYTES:
            self._hang_up()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._head_bytes, self._in_head = 0, True
        self._expect_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End a request's head."""
        self._in_head = self._head_goes_on = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request; between two of them uvicorn's own time-out holds."""
        self._forget_unsent()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the buffered bytes."""
        super().on_response_complete()
        self._parse()

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        within_s = 0.0 if self._ending else READ_WITHIN_S
        self._unread = self.loop.call_later(within_s, self._hang_up)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        self._forget_unread()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._forget_unread()
        self._forget_unsent()
        self._answer_nobody()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End after the current answers, or as soon as nobody reads them.

        An incomplete request has no current answer.
        """
        self._ending = True
        cycle = self.cycle
        half_a_request = cycle is not None and cycle.more_body and not cycle.response_complete
        if self._unread is None and not half_a_request:
            super().shutdown()
        else:
            self._hang_up()

    def _parse(self) -> None:
        while self._ahead and not self._waited_for and not self.transport.is_closing():
            piece = bytes(self._ahead[:_PIECE_BYTES])
            del self._ahead[:_PIECE_BYTES]
            self._parse_piece(piece)
        if self._ahead:
            self.flow.pause_reading()

    @property
    def _waited_for(self) -> bool:
        """Whether a request is complete and its answer is not."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _parse_piece(self, piece: bytes) -> None:
        self._head_goes_on = self._in_head
        super().data_received(piece)
        # Only a chunk that is all head counts: others contain the end of a request.
        if self._head_goes_on and not self.transport.is_closing():
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("Request line and headers are too large.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        async def answer(
            scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
        ) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                # The process ends. uvicorn would log a traceback and answer 500, which no client
                # tries again.
                if not cycle.disconnected:
                    self._hang_up()

        self._answering = cycle
        super()._start_asgi_task(cycle, answer)

    def _answer_nobody(self) -> None:
        # The current answer may belong to an older request than uvicorn's newest.
        if self._answering is not None:
            self._answering.disconnected = True

    def _hang_up(self) -> None:
        self._answer_nobody()  # first: aborting wakes pending writers
        # The kernel also drops its buffer for this client.
        self.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expect_request(self) -> None:
        self._forget_unsent()
        self._unsent = self.loop.call_later(SENT_WITHIN_S, self._hang_up_unless_answering)

    def _hang_up_unless_answering(self) -> None:
        if self._waited_for:
            self._expect_request()  # the rest may have arrived, and is processed after the answer
        else:
            self._hang_up()

    def _forget_unsent(self) -> None:
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None
