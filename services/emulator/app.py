"""The emulator: `python -m services.emulator.app`.

Two HTTP servers share one event loop. Unmodified boto3 calls the Invoke API with `endpoint_url`;
unmodified awslambdaric polls the Runtime API.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
import uvloop
from pydantic import ValidationError
from pydantic_settings import SettingsError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.emulator.api.endpoint import Endpoint, not_found
from services.emulator.api.function import Function, named_in
from services.emulator.api.guard import host_guard, load_token, token_guard
from services.emulator.api.invoke import InvokeApi
from services.emulator.api.operator import OperatorApi
from services.emulator.api.provisioned import ProvisionedConcurrency
from services.emulator.api.runtime import Connections, RuntimeApi
from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.connected import ConnectedEnvironments
from services.emulator.environments.fleet import Fleet
from services.emulator.environments.processes import ProcessEnvironments
from services.emulator.faults import Faults
from services.emulator.settings import PREFIX, Settings
from shared.service.serving import CANNOT_START, allow_many_connections, listen
from shared.service.tokens import TokenError

_logger = logging.getLogger("services.emulator.app")

_KEEP_ALIVE_S = 3600
"""Idle connections stay open: closing one just as its client reuses it would lose a request."""
_GRACE_S = 5


class PortError(Exception):
    """A setting names an address or port that is unavailable."""


class Hosted:
    """One function: its environments, its Runtime API, and its part of the Invoke API."""

    def __init__(self, settings: Settings, *, name: str = "") -> None:
        """Wire the function and listen; nothing runs yet.

        Args:
            settings: The function's settings.
            name: Its name in the operator's paths; empty for the first function.

        Raises:
            PortError: An address cannot be listened on.
        """
        self.function_name = settings.function_name
        self.listeners = _listen_runtime(settings)
        faults = Faults(settings.faults)
        self.dispatcher = dispatcher = Dispatcher(
            faults,
            concurrency_limit=settings.concurrency_limit,
            timeout_s=settings.timeout_s,
            memory_mb=settings.memory_mb,
            idle_s=settings.idle_s,
        )
        connections = Connections()
        self.environments: Fleet
        if settings.mode == "processes":
            ports = [listener.getsockname()[1] for listener in self.listeners]
            prefix = f"{name}-" if name else ""
            self.environments = ProcessEnvironments(
                settings, dispatcher, ports=ports, prefix=prefix
            )
        else:
            self.environments = ConnectedEnvironments(dispatcher, drop=connections.drop)
        connections.on_lost = self.environments.connection_lost
        function = Function(settings)
        self.front: ASGIApp = Router(
            routes=[
                *InvokeApi(settings, function, dispatcher).routes,
                *ProvisionedConcurrency(function, dispatcher, self.environments, faults).routes,
                *OperatorApi(dispatcher, self.environments, faults, name=name).routes,
                Route("/{path:path}", Endpoint(_unknown), methods=_ALL_METHODS),
            ]
        )
        runtime = RuntimeApi(dispatcher, self.environments, timeout_s=settings.timeout_s).app
        guarded = host_guard(runtime, hosts=settings.known_hosts)
        self.runtime = _server(guarded, http=connections.protocol())

    async def serve(self) -> None:
        """Serve the function's Runtime API."""
        await self.runtime.serve(self.listeners)


class Emulator:
    """Two servers on one event loop, and the hosted functions between them."""

    def __init__(self, settings: Settings) -> None:
        """Wire the servers and listen; nothing runs yet.

        Raises:
            TokenError: There is no usable token.
            PortError: An address cannot be listened on.
        """
        token = load_token(settings)
        self._settings = settings
        self._front_listener = _listen(settings.host, settings.port, setting="PORT")
        second = settings.of_second()
        try:
            self._hosted = [Hosted(settings)]
            if second is not None:
                self._hosted.append(Hosted(second, name=second.function_name))
        except PortError:
            self._front_listener.close()
            raise
        front: ASGIApp = self._route
        if token is not None:
            front = token_guard(front, token=token)
        self._front = _server(host_guard(front, hosts=settings.known_hosts), http=HttpToolsProtocol)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the function in its path, or to the first function."""
        name = named_in(scope.get("path", ""))
        named = [hosted for hosted in self._hosted if hosted.function_name == name]
        await (named or self._hosted)[0].front(scope, receive, send)

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT; then close connections and end all environments."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        serving = [
            asyncio.create_task(self._front.serve([self._front_listener])),
            *(asyncio.create_task(each.serve()) for each in self._hosted),
        ]
        stopped = asyncio.create_task(stop.wait())
        supervising = [task for each in self._hosted for task in each.environments.open()]
        try:
            self._announce()
            needed = [stopped, *serving, *supervising]
            await asyncio.wait(needed, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            # Close connections first, even while invocations run: callers would take an answer now
            # for the function's own, and a newly accepted request would be lost. Callers see the
            # same as when a machine fails.
            self._front.hang_up()
            for each in self._hosted:
                each.dispatcher.close()
            for each in self._hosted:
                await each.environments.close()
                each.runtime.should_exit = True
            self._front.should_exit = True
            await asyncio.gather(*serving)

    def _announce(self) -> None:
        settings = self._settings
        port = self._front_listener.getsockname()[1]
        runtime_port = self._hosted[0].listeners[0].getsockname()[1]
        name = settings.function_name
        _logger.info(
            "Lambda emulator: Invoke API on %s port %d, function %s", settings.host, port, name
        )
        if settings.mode == "external":
            _logger.info("Runtime API on %s port %d", settings.runtime_host, runtime_port)
        if settings.ports_file is not None:
            ports = {"port": port, "runtime_port": runtime_port}
            partial = settings.ports_file.with_name(settings.ports_file.name + ".partial")
            partial.write_text(json.dumps(ports), encoding="utf-8")
            partial.replace(settings.ports_file)


_ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


async def _unknown(request: Request) -> Response:
    raise not_found(
        f"{request.method} {request.url.path} is not emulated.",
        error_type="UnknownOperationException",
    )


def _listen(host: str, port: int, *, setting: str) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        raise PortError(
            f"{PREFIX}{setting}: cannot listen on {host} port {port} ({error.strerror}): "
            f"choose a free port, or 0 to let the system choose"
        ) from error


def _listen_runtime(settings: Settings) -> list[socket.socket]:
    if settings.mode == "external":
        return [_listen(settings.runtime_host, settings.runtime_port, setting="RUNTIME_PORT")]
    return [_listen("127.0.0.1", 0, setting="PROCESSES") for _ in range(settings.processes)]


class _Server(uvicorn.Server):
    """A server that leaves signals to the emulator: two servers share one loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def hang_up(self) -> None:
        """Accept no more connections, and close the open ones without an answer."""
        if self.started:
            for server in self.servers:
                server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _server(app: ASGIApp, *, http: type[asyncio.Protocol]) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )


def main() -> int:
    """Run the emulator and return the exit code."""
    try:
        settings = Settings()
        if settings.log_folder is not None:
            settings.log_folder.mkdir(parents=True, exist_ok=True)
    except ValidationError as error:
        return _refuse(_problems(error))
    except SettingsError as error:
        return _refuse(f"{PREFIX}…: {error}: write it as JSON")
    except OSError as error:
        return _refuse(f"{PREFIX}LOG_FOLDER: cannot create the folder: {error}")
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    allow_many_connections()
    try:
        uvloop.run(Emulator(settings).serve())
    except (PortError, TokenError) as error:
        return _refuse(str(error))
    return 0


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return CANNOT_START


def _problems(error: ValidationError) -> str:
    # Values are left out: `variables` may hold secrets.
    return "\n".join(
        f"{PREFIX}{'__'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )


if __name__ == "__main__":
    sys.exit(main())
