"""One route's application: a handler, and errors as the responses that SDKs understand.

Three requests make up one invocation, so the way to a handler is kept short: the routes hold these
objects, and what serves them is the bare router. Starlette's application would lead every request
through layers that answer exceptions we do not raise.
"""

import uuid
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.emulator.errors import ServiceError, error_response

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """An ASGI application that runs a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            response = await self._handler(request)
        except ServiceError as error:
            response = error_response(error, request_id=str(uuid.uuid4()))
        await response(scope, receive, send)
