"""One route's application: a handler, and errors as the responses that SDKs understand.

One invocation takes three requests, so the path to a handler is short: the routes hold these
objects, and the bare router serves them. Starlette's application would pass every request through
layers for exceptions that the emulator does not raise.
"""

import uuid
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]


class ServiceError(Exception):
    """An error of the Lambda service, not of the function.

    Args:
        error_type: Exception name boto3 raises, such as ResourceNotFoundException.
        message: The problem, with the bad value and the fix.
        status: HTTP status.
        reason: `Reason` field of throttles.
    """

    def __init__(
        self, error_type: str, message: str, *, status: int, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.status = status
        self.reason = reason

    def response(self) -> Response:
        """Return the error in boto3's form: a typed header and a small JSON body."""
        # The API's modelled errors use either spelling of the field; SDKs read both.
        body = {
            "Type": "User" if self.status < 500 else "Service",
            "message": str(self),
            "Message": str(self),
        }
        headers = {"x-amzn-ErrorType": self.error_type, "x-amzn-RequestId": str(uuid.uuid4())}
        if self.status == 429:
            headers["Retry-After"] = "1"
        if self.reason is not None:
            body["Reason"] = self.reason
        return JSONResponse(body, self.status, headers)


def throttled() -> ServiceError:
    """Return the error of an invocation above the concurrency limit."""
    return ServiceError(
        "TooManyRequestsException",
        "Rate Exceeded.",
        status=429,
        reason="ConcurrentInvocationLimitExceeded",
    )


def not_found(message: str, *, error_type: str = "ResourceNotFoundException") -> ServiceError:
    """Return the error of a name that is not configured here."""
    return ServiceError(error_type, message, status=404)


def invalid_parameter(message: str) -> ServiceError:
    """Return the error of an invalid parameter."""
    return ServiceError("InvalidParameterValueException", message, status=400)


class Endpoint:
    """An ASGI application that runs a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._handler(Request(scope, receive))
        except ServiceError as error:
            response = error.response()
        await response(scope, receive, send)


async def read_body(request: Request, *, limit: int) -> bytes | None:
    """Return the request's body, or None if it is larger than `limit` bytes.

    A larger body is read to its end and discarded: a client that is cut off while sending would see
    a broken connection instead of the answer.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
    return b"".join(chunks) if size <= limit else None
