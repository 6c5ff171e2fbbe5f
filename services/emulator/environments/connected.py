"""Environments that connect to the emulator: containers that poll the Runtime API.

An environment is its connection. The runtime client keeps one connection open for all its requests.
So a poll on a new connection is a new environment, and a closed connection is a lost environment.
"""

import asyncio
import logging
from collections.abc import Callable

from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.environment import Environment, Peer
from services.emulator.invocation import Outcome

_logger = logging.getLogger(__name__)


class ConnectedEnvironments:
    """Tracks the connected environments."""

    def __init__(self, dispatcher: Dispatcher, *, drop: Callable[[Peer], None]) -> None:
        """Wire the tracker; `drop` closes a peer's connection."""
        self._dispatcher = dispatcher
        self._drop = drop
        self._environments: dict[Peer, Environment] = {}
        self._init_error: str | None = None

    def open(self) -> list[asyncio.Task[None]]:
        """Return no tasks: the containers are supervised elsewhere."""
        return []

    def prewarm(self, count: int) -> None:
        """Do nothing: the number of containers is decided elsewhere."""

    def initialised(self, count: int) -> bool:
        """Return whether any environment is connected."""
        return bool(self._environments)

    def init_error(self) -> str | None:
        """Return the last start-up error; None while an environment is connected."""
        return None if self._environments else self._init_error

    def missing(self) -> str | None:
        """Return why the emulator is not ready; None if it is."""
        if self._environments:
            return None
        suffix = f"; last init error: {self._init_error}" if self._init_error else ""
        return f"no environment has connected to the Runtime API yet{suffix}"

    def all(self) -> list[Environment]:
        """Return the connected environments."""
        return list(self._environments.values())

    def identify(self, client: Peer, _port: int) -> Environment | None:
        """Return a connection's environment, created if the connection is new."""
        environment = self._environments.get(client)
        if environment is None:
            environment = Environment(
                name=f"{client[0]}:{client[1]}", kill=lambda: self._drop(client)
            )
            self._environments[client] = environment
        return environment

    def init_failed(self, environment: Environment, *, error: Outcome) -> None:
        """Fail waiting invocations with the init error unless another environment is there."""
        self._init_error = error.payload.decode(errors="replace")
        _logger.error("%s cannot be initialised: %s", environment.name, self._init_error)
        self._environments = {
            client: other
            for client, other in self._environments.items()
            if other is not environment
        }
        if not self._environments:
            self._dispatcher.fail_queued(error)

    def connection_lost(self, client: Peer, _port: int) -> None:
        """Give up the environment of a closed connection."""
        environment = self._environments.pop(client, None)
        if environment is not None:
            self._dispatcher.environment_lost(environment, "connection closed")

    async def close(self) -> None:
        """Give up all environments; the emulator does not stop the containers."""
        for client in list(self._environments):
            self.connection_lost(client, 0)
