"""The Runtime API: what an execution environment calls to get its next invocation and to answer.

Version 2018-06-01, as far as AWS's runtime clients use it. Bodies pass through unparsed.
"""

import asyncio
import json
import time
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.emulator.dispatcher import Dispatcher
from services.emulator.endpoint import Endpoint
from services.emulator.environment import Environment, State
from services.emulator.errors import json_response, read_body
from services.emulator.invocation import RESPONSE_LIMIT, Invocation, Outcome

_ROOT = "/2018-06-01/runtime"
_ERROR_TYPE_HEADER = "lambda-runtime-function-error-type"
_ERROR_LIMIT_BYTES = 262_144


class Environments(Protocol):
    """Who knows which environment a request comes from."""

    def identify(self, client: tuple[str, int], *, port: int) -> Environment | None:
        """Return the environment that calls from `client` at our `port`."""

    def init_failed(self, environment: Environment, *, error: Outcome) -> None:
        """Hear that an environment cannot initialise the function."""


class ConnectionListener(Protocol):
    """Hears of a connection that closed."""

    def __call__(self, client: tuple[str, int], *, port: int) -> None:
        """Hear that the connection of `client` to our `port` is closed."""


def _nobody_listens(client: tuple[str, int], *, port: int) -> None:
    """Do nothing."""


class Connections:
    """The Runtime API's open connections: tells of those that close, closes those it is told to."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], HttpToolsProtocol] = {}
        self.on_lost: ConnectionListener = _nobody_listens

    def drop(self, client: tuple[str, int]) -> None:
        """Close the connection of a peer, if it is still there."""
        connection = self._open.get(client)
        if connection is not None:
            connection.transport.abort()

    def protocol(self) -> type[HttpToolsProtocol]:
        """Return the HTTP protocol with our ear on it.

        ASGI tells an application that its client left only while a response is pending; an
        environment that dies while it runs an invocation has none pending.
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
                        connections.on_lost(self.client, port=port)

        return RuntimeConnection


class RuntimeApi:
    """Routes of the Runtime API.

    Args:
        dispatcher: Hands out invocations.
        environments: Tells environments apart.
        timeout_s: For the deadline header.
    """

    def __init__(
        self, dispatcher: Dispatcher, environments: Environments, *, timeout_s: float
    ) -> None:
        self._dispatcher = dispatcher
        self._environments = environments
        self._timeout_s = timeout_s
        invocation = f"{_ROOT}/invocation"
        self.app = Router(
            routes=[
                Route(f"{invocation}/next", Endpoint(self._next), methods=["GET"]),
                Route(
                    f"{invocation}/{{request_id}}/response",
                    Endpoint(self._response),
                    methods=["POST"],
                ),
                Route(
                    f"{invocation}/{{request_id}}/error", Endpoint(self._error), methods=["POST"]
                ),
                Route(f"{_ROOT}/init/error", Endpoint(self._init_error), methods=["POST"]),
            ]
        )

    def _environment(self, request: Request) -> Environment | None:
        client, server = request.scope["client"], request.scope["server"]
        return self._environments.identify((client[0], client[1]), port=server[1])

    async def _next(self, request: Request) -> Response:
        environment = self._environment(request)
        if environment is None or environment.state is State.LOST:
            return _refused(410, "EnvironmentGone", "this environment was given up")
        if environment.invocation is not None or environment.state is State.IDLE:
            return _refused(403, "InvalidStateTransition", "an invocation or a poll is open")
        client = request.scope["client"]
        environment.connection = (client[0], client[1])
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
        payload = await read_body(request, limit=RESPONSE_LIMIT)
        if not self._dispatcher.respond(
            request.path_params["request_id"], payload, error_type=None
        ):
            return _invalid_request_id()
        if payload is None:
            return _refused(413, "RequestEntityTooLarge", "Exceeded maximum allowed payload size")
        return _accepted()

    async def _error(self, request: Request) -> Response:
        payload = await read_body(request, limit=RESPONSE_LIMIT)
        error_type = request.headers.get(_ERROR_TYPE_HEADER, "Unhandled")
        request_id = request.path_params["request_id"]
        if not self._dispatcher.respond(request_id, payload, error_type=error_type):
            return _invalid_request_id()
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


def _headers(invocation: Invocation, *, deadline_ms: int) -> dict[str, str]:
    # All of them, always: AWS's native client crashes when one of the last three is absent, and
    # takes the JSON null for "none given".
    return {
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.arn,
        "Lambda-Runtime-Trace-Id": invocation.trace_id,
        "Lambda-Runtime-Client-Context": invocation.client_context,
        "Lambda-Runtime-Cognito-Identity": "null",
    }


def _accepted() -> Response:
    return json_response({"status": "OK"}, status=202)


def _refused(status: int, error_type: str, message: str) -> Response:
    return json_response({"errorType": error_type, "errorMessage": message}, status=status)


def _invalid_request_id() -> Response:
    return _refused(400, "InvalidRequestID", "no such invocation is running: it ended or timed out")
