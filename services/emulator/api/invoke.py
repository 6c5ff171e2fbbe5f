"""The Invoke API, which boto3's Lambda client calls to run the function."""

import asyncio
import base64
import json
import time
import uuid
from pathlib import Path
from typing import NoReturn

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.emulator.affinity import kind_of_event
from services.emulator.api.endpoint import Endpoint, ServiceError, invalid_parameter, read_body
from services.emulator.api.function import Function
from services.emulator.dispatcher import Dispatcher
from services.emulator.invocation import PAYLOAD_LIMIT, Invocation, Outcome
from services.emulator.settings import Settings

_CONTENT_TYPES = frozenset(
    {"", "application/json", "application/octet-stream", "binary/octet-stream"}
)
OLDEST_HEADER = "X-Nitro-Oldest-Invocation-S"
"""Header of the account's settings: age of the oldest invocation in flight. Lambda has none."""


class Journal:
    """A log of invocations as JSON lines, for tests of the function's callers.

    It has each invocation's request and outcome. Lines are flushed at once, so the file survives a
    crash of the emulator. Without a file it does nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("a", encoding="utf-8", buffering=1)

    def accepted(self, invocation: Invocation) -> None:
        """Log the event of an accepted invocation."""
        if self._file is not None:
            self._write(invocation, {"event": json.loads(invocation.payload)})

    def ended(self, invocation: Invocation, outcome: Outcome) -> None:
        """Log an invocation's outcome: the type of its error, or null."""
        self._write(invocation, {"ended": outcome.error_type})

    def _write(self, invocation: Invocation, what: dict[str, object]) -> None:
        if self._file is not None:
            line = {"at": time.time(), "id": invocation.request_id, **what}
            self._file.write(json.dumps(line) + "\n")


class InvokeApi:
    """Routes that run and describe the function."""

    def __init__(self, settings: Settings, function: Function, dispatcher: Dispatcher) -> None:
        self._settings = settings
        self._function = function
        self._dispatcher = dispatcher
        self._journal = Journal(settings.journal)
        name = "/2015-03-31/functions/{name}"
        self.routes = [
            Route(f"{name}/invocations", Endpoint(self._invoke), methods=["POST"]),
            Route(f"{name}/configuration", Endpoint(self._configuration), methods=["GET"]),
            Route(name, Endpoint(self._get_function), methods=["GET"]),
            Route(
                "/2016-08-19/account-settings", Endpoint(self._account_settings), methods=["GET"]
            ),
        ]

    async def _invoke(self, request: Request) -> Response:
        target = self._function.target(request)
        invocation_type = request.headers.get("x-amz-invocation-type", "RequestResponse")
        if invocation_type != "RequestResponse":
            raise invalid_parameter(
                f"InvocationType {invocation_type!r} is not offered here: use RequestResponse."
            )
        payload = await _payload(request)
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        invocation = Invocation(
            request_id=str(uuid.uuid4()),
            payload=payload,
            arn=target.arn,
            version=target.version,
            trace_id=request.headers.get("x-amzn-trace-id") or _trace_id(),
            kind=kind_of_event(payload, self._settings.affinity_fields),
            wants_log=request.headers.get("x-amz-log-type") == "Tail",
            outcome=ended,
        )
        self._dispatcher.submit(invocation)
        self._journal.accepted(invocation)
        # The server does not cancel this if the client disconnects: an accepted invocation runs.
        outcome = await ended
        self._journal.ended(invocation, outcome)
        return _answer(invocation, outcome)

    async def _configuration(self, request: Request) -> Response:
        return JSONResponse(self._function.configuration(self._function.target(request)))

    async def _get_function(self, request: Request) -> Response:
        configuration = self._function.configuration(self._function.target(request))
        return JSONResponse({"Configuration": configuration, "Tags": {}})

    async def _account_settings(self, request: Request) -> Response:
        limit = self._settings.concurrency_limit
        return JSONResponse(
            {
                "AccountLimit": {
                    "TotalCodeSize": 80_530_636_800,
                    "CodeSizeUnzipped": 262_144_000,
                    "CodeSizeZipped": 52_428_800,
                    "ConcurrentExecutions": limit,
                    "UnreservedConcurrentExecutions": limit,
                },
                "AccountUsage": {"TotalCodeSize": 0, "FunctionCount": 1},
            },
            headers={OLDEST_HEADER: f"{self._dispatcher.oldest_s:.3f}"},
        )


async def _payload(request: Request) -> bytes:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _CONTENT_TYPES:
        raise ServiceError(
            "UnsupportedMediaTypeException",
            f"Content-Type {content_type!r} is not supported: send application/json.",
            status=415,
        )
    payload = await read_body(request, limit=PAYLOAD_LIMIT)
    if payload is None:
        raise ServiceError(
            "RequestTooLargeException",
            f"Request must be smaller than {PAYLOAD_LIMIT} bytes for the InvokeFunction operation",
            status=413,
        )
    if not payload:
        return b"{}"
    _check_json(payload)
    return payload


def _check_json(payload: bytes) -> None:
    try:
        json.loads(payload.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            "InvalidRequestContentException",
            f"Could not parse request body into json: {error}",
            status=400,
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _trace_id() -> str:
    unique = uuid.uuid4().hex
    return f"Root=1-{int(time.time()):08x}-{unique[:24]};Parent={unique[16:]};Sampled=0"


def _answer(invocation: Invocation, outcome: Outcome) -> Response:
    headers = {
        "x-amzn-RequestId": invocation.request_id,
        "X-Amzn-Trace-Id": invocation.trace_id,
        "X-Amz-Executed-Version": invocation.version,
    }
    if outcome.error_type is not None:
        headers["X-Amz-Function-Error"] = "Unhandled"
    if invocation.wants_log:
        headers["X-Amz-Log-Result"] = base64.b64encode(outcome.log_tail).decode("ascii")
    return Response(outcome.payload, headers=headers, media_type="application/json")
