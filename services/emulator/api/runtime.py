"""The Runtime API, through which an execution environment gets invocations and answers them.

It implements the part of version 2018-06-01 that AWS's runtime clients use. Bodies pass through
unparsed.
"""

import asyncio
import json
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.emulator.api.endpoint import Endpoint, read_body
from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.environment import Environment, Peer, State
from services.emulator.environments.fleet import Fleet
from services.emulator.invocation import RESPONSE_LIMIT, Invocation, Outcome

_ROOT = "/2018-06-01/runtime"
_ERROR_TYPE_HEADER = "lambda-runtime-function-error-type"
_ERROR_LIMIT_BYTES = 262_144


class Connections:
    """The Runtime API's open connections: reports closed ones, and closes them on request."""

    def __init__(self) -> None:
        self._open: dict[Peer, HttpToolsProtocol] = {}
        self.on_lost: Callable[[Peer, int], None] = lambda _client, _port: None
        """Called with the peer and the local port of each closed connection."""

    def drop(self, client: Peer) -> None:
        """Close a peer's connection if it is still open."""
        connection = self._open.get(client)
        if connection is not None:
            connection.transport.abort()

    def protocol(self) -> type[HttpToolsProtocol]:
        """Return the HTTP protocol, extended to report closed connections.

        ASGI reports a disconnected client only while a response is pending. An environment that
        dies during an invocation has none pending.
        """
        connections = self

        class RuntimeConnection(HttpToolsProtocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self.client is not None:
                    connections._open[self.client] = self

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                if self.client is not None:
                    connections._open.pop(self.client, None)
                    _, port = self.server or ("", None)
                    if port is not None:
                        connections.on_lost(self.client, port)

        return RuntimeConnection


class RuntimeApi:
    """Routes of the Runtime API."""

    def __init__(self, dispatcher: Dispatcher, environments: Fleet, *, timeout_s: float) -> None:
        self._dispatcher = dispatcher
        self._environments = environments
        self._timeout_s = timeout_s
        running = f"{_ROOT}/invocation/{{request_id}}"
        self.app = Router(
            routes=[
                Route(f"{_ROOT}/invocation/next", Endpoint(self._next), methods=["GET"]),
                Route(f"{running}/response", Endpoint(self._response), methods=["POST"]),
                Route(f"{running}/error", Endpoint(self._error), methods=["POST"]),
                Route(f"{_ROOT}/init/error", Endpoint(self._init_error), methods=["POST"]),
            ]
        )

    def _environment(self, request: Request) -> Environment | None:
        return self._environments.identify(_peer(request), request.scope["server"][1])

    async def _next(self, request: Request) -> Response:
        environment = self._environment(request)
        if environment is None or environment.state is State.LOST:
            return _refused(410, "EnvironmentGone", "this environment was given up")
        if environment.invocation is not None or environment.state is State.IDLE:
            return _refused(403, "InvalidStateTransition", "an invocation or a poll is open")
        environment.connection = _peer(request)
        invocation = await self._dispatcher.next_invocation(environment)
        if invocation is None:
            return _refused(410, "EnvironmentGone", "no more invocations for this environment")
        deadline_ms = int((time.time() + self._timeout_s) * 1000)
        return Response(
            invocation.payload,
            headers=_headers(invocation, deadline_ms=deadline_ms),
            media_type="application/json",
        )

    async def _response(self, request: Request) -> Response:
        return await self._end(request, error_type=None)

    async def _error(self, request: Request) -> Response:
        error_type = request.headers.get(_ERROR_TYPE_HEADER, "Unhandled")
        return await self._end(request, error_type=error_type)

    async def _end(self, request: Request, *, error_type: str | None) -> Response:
        payload = await read_body(request, limit=RESPONSE_LIMIT)
        request_id = request.path_params["request_id"]
        if not self._dispatcher.respond(request_id, payload, error_type=error_type):
            why = "no such invocation is running: it ended or timed out"
            return _refused(400, "InvalidRequestID", why)
        if payload is None and error_type is None:
            return _refused(413, "RequestEntityTooLarge", "Exceeded maximum allowed payload size")
        return _accepted()

    async def _init_error(self, request: Request) -> Response:
        payload = await read_body(request, limit=_ERROR_LIMIT_BYTES)
        error_type = request.headers.get(_ERROR_TYPE_HEADER, "Runtime.InitError")
        body = payload or json.dumps({"errorType": error_type, "errorMessage": ""}).encode()
        environment = self._environment(request)
        if environment is not None:
            outcome = Outcome(payload=body, error_type=error_type)
            self._environments.init_failed(environment, error=outcome)
        return _accepted()


def _peer(request: Request) -> Peer:
    host, port = request.scope["client"]
    return host, port


def _headers(invocation: Invocation, *, deadline_ms: int) -> dict[str, str]:
    # Always send all of them: AWS's native client crashes if one of the last three is absent, and
    # reads JSON null as an absent value.
    return {
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.arn,
        "Lambda-Runtime-Trace-Id": invocation.trace_id,
        "Lambda-Runtime-Client-Context": "null",
        "Lambda-Runtime-Cognito-Identity": "null",
    }


def _accepted() -> Response:
    return JSONResponse({"status": "OK"}, 202)


def _refused(status: int, error_type: str, message: str) -> Response:
    return JSONResponse({"errorType": error_type, "errorMessage": message}, status)
