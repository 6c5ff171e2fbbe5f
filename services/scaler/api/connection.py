"""One client's connection: uvicorn's, with a bound on what it holds and for how long.

uvicorn's fast parser takes in all that is sent before anybody has seen a token: a head without end,
or thousands of requests back to back. And it waits for ever for a client to send a request, or to
read its answers.
Bodies have their own bound, in `services.scaler.api.guard`; docs/decisions/025 has the reasons.
"""

import asyncio
import struct
from socket import SO_LINGER, SOL_SOCKET

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES = 64 * 1024
"""Largest request line and headers, beyond the piece they begin in; a proxy allows far less."""
MAX_AHEAD_BYTES = 512 * 1024
"""Most that a client may send while it waits for an answer; twice what one read takes in."""
READ_WITHIN_S = 30.0
"""How long a client may leave an answer unread that its connection cannot hold."""
SENT_WITHIN_S = 30.0
"""How long a client may take to send a request, and a new one to begin."""
KEEP_ALIVE_S = 75
"""How long a connection stays between requests: longer than clients and proxies keep theirs. A
server that closes one just as its client uses it again loses that request."""
_PIECE_BYTES = 2048
"""What the parser gets at a time: all requests in it are taken on, of which the shortest has 18."""
_AT_ONCE = struct.pack("ii", 1, 0)


class BoundedConnection(HttpToolsProtocol):
    """Takes up what was sent as answers are read; hangs up on who sends or waits without end."""

    _head_bytes = 0
    _head_goes_on = False
    """Whether the piece at hand began inside a head, and is still inside it."""
    _in_head = False
    _ending = False
    """Whether the process ends: it waits for nobody who does not read."""
    _unread: asyncio.TimerHandle | None = None
    _unsent: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take up a connection."""
        super().connection_made(transport)
        self.timeout_keep_alive = KEEP_ALIVE_S
        self._ahead = bytearray()
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Take in what a client sent; what comes while it waits for an answer is kept for later."""
        if self._unsent is None and not self._waited_for:
            self._expect_request()  # even an empty line has ended uvicorn's own time-out
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
        """Go on to what was sent meanwhile."""
        super().on_response_complete()
        self._parse()

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        within_s = 0.0 if self._ending else READ_WITHIN_S
        self._unread = self.loop.call_later(within_s, self._hang_up)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._forget_unread()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._forget_unread()
        self._forget_unsent()
        self._answer_nobody()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End after the answers under way, or as soon as nobody reads them.

        A request that has not come whole has no answer under way.
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
        """Whether all of a request has come, and not all of its answer has been written."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _parse_piece(self, piece: bytes) -> None:
        self._head_goes_on = self._in_head
        super().data_received(piece)
        # Only a piece that is all head counts: others hold the end of one request and more.
        if self._head_goes_on and not self.transport.is_closing():
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("Request line and headers are too large.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _answer_nobody(self) -> None:
        # The answer under way may be to an older request than the newest, which uvicorn knows.
        if self._answering is not None:
            self._answering.disconnected = True

    def _hang_up(self) -> None:
        self._answer_nobody()  # first: aborting wakes who waits to write
        # The kernel, too, forgets what it holds for a client that does not take it.
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
            self._expect_request()  # the rest may have come, and is taken up after the answer
        else:
            self._hang_up()

    def _forget_unsent(self) -> None:
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None
