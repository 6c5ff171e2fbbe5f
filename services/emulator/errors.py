"""Lambda's service errors as boto3 understands them: a typed header and a small JSON body."""

import json
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response


class ServiceError(Exception):
    """An error of the Lambda service, not of the function.

    Args:
        error_type: Exception name boto3 raises, such as ResourceNotFoundException.
        message: What is wrong, with the bad value and the fix.
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


def throttled() -> ServiceError:
    """Return the error of an invocation above the concurrency limit."""
    return ServiceError(
        "TooManyRequestsException",
        "Rate Exceeded.",
        status=429,
        reason="ConcurrentInvocationLimitExceeded",
    )


def not_found(message: str, *, error_type: str = "ResourceNotFoundException") -> ServiceError:
    """Return the error of something that is not configured here."""
    return ServiceError(error_type, message, status=404)


def invalid_parameter(message: str) -> ServiceError:
    """Return the error of a parameter that makes no sense."""
    return ServiceError("InvalidParameterValueException", message, status=400)


def error_response(error: ServiceError, *, request_id: str) -> Response:
    """Render a service error."""
    body = {"Type": "User" if error.status < 500 else "Service", "message": str(error)}
    headers = {"x-amzn-ErrorType": error.error_type, "x-amzn-RequestId": request_id}
    if error.status == 429:
        headers["Retry-After"] = "1"
    if error.reason is not None:
        body["Reason"] = error.reason
    # Modelled errors spell the field both ways across the API; SDKs read either.
    body["Message"] = str(error)
    return json_response(body, status=error.status, headers=headers)


def json_response(
    body: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Render a JSON body."""
    return Response(
        json.dumps(body), status_code=status, headers=headers, media_type="application/json"
    )


async def read_body(request: Request, *, limit: int) -> bytes | None:
    """Return the request's body, None when it is larger than `limit` bytes.

    A body too large is still read to its end, without keeping it: a client that is cut off while
    it sends sees a broken connection instead of the answer.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
    return b"".join(chunks) if size <= limit else None
