"""What moto's DynamoDB lacks of transactions: a request sent twice is done once.

The SDK gives every `TransactWriteItems` a token and sends the same one when it tries again, as it
does after a time-out. DynamoDB answers the second request as it did the first for ten minutes;
moto would do it again, and a change would be made twice on a machine busy enough to time out.
"""

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]


class OncePerToken:
    """A WSGI application around moto's; serves one request at a time."""

    def __init__(self, app: WsgiApp) -> None:
        self._app = app
        self._done: dict[str, tuple[tuple[Any, ...], bytes]] = {}
        """Of transactions that were written, by their token."""

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if not str(environ.get("HTTP_X_AMZ_TARGET", "")).endswith(".TransactWriteItems"):
            return self._app(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        token = str(json.loads(body)["ClientRequestToken"])
        if token not in self._done:
            head, answer = self._forward({**environ, "wsgi.input": io.BytesIO(body)})
            if not str(head[0]).startswith("200"):
                start_response(*head)
                return [answer]
            self._done[token] = (head, answer)
        head, answer = self._done[token]
        start_response(*head)
        return [answer]

    def _forward(self, environ: Environ) -> tuple[tuple[Any, ...], bytes]:
        heads: list[tuple[Any, ...]] = []
        answer = b"".join(self._app(environ, lambda *head: heads.append(head)))
        return heads[-1], answer
