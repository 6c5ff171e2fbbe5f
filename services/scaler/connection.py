"""One client's connection: uvicorn's, with a bound on what it holds before a request is whole.

uvicorn's fast parser keeps as much of a request's line and headers as is sent, and it does so
before anybody has seen a token. Bodies have their own bound, in `services.scaler.guard`.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
"""Largest request line and headers, beyond the piece they begin in; a proxy allows far less."""


class BoundedConnection(HttpToolsProtocol):
    """Answers 400 and hangs up when a request's head does not come to its end in time."""

    _head_bytes = 0
    _head_goes_on = False
    """Whether the piece at hand began inside a head, and is still inside it."""
    _in_head = False

    def data_received(self, data: bytes) -> None:
        """Take in what a client sent."""
        self._head_goes_on = self._in_head
        super().data_received(data)
        # Only a piece that is all head counts: others hold the end of one request and more.
        if self._head_goes_on and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("Request line and headers are too large.")

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End a request's head."""
        self._in_head = self._head_goes_on = False
        super().on_headers_complete()
