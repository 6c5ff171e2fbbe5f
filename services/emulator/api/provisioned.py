"""Provisioned concurrency: environments initialised ahead of demand, one configuration per alias.

The emulator starts as many environments as there are processes for, and exempts them from idle
expiry. The rest is bookkeeping with Lambda's states. Deleting a configuration leaves its
environments warm until they expire, like those of an idle function.
"""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.emulator.api.endpoint import Endpoint, invalid_parameter, not_found
from services.emulator.api.function import LATEST, Function
from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.fleet import Fleet
from services.emulator.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    requested: int
    since: float
    """Loop time of the request."""
    last_modified: str


class ProvisionedConcurrency:
    """Routes to put, get and delete provisioned concurrency."""

    def __init__(
        self, function: Function, dispatcher: Dispatcher, environments: Fleet, faults: Faults
    ) -> None:
        self._function = function
        self._dispatcher = dispatcher
        self._environments = environments
        self._faults = faults
        self._configurations: dict[str, _Configuration] = {}
        path = "/2019-09-30/functions/{name}/provisioned-concurrency"
        self.routes = [
            Route(path, Endpoint(self._put), methods=["PUT"]),
            Route(path, Endpoint(self._get), methods=["GET"]),
            Route(path, Endpoint(self._delete), methods=["DELETE"]),
        ]

    def _qualifier(self, request: Request) -> str:
        target = self._function.target(request)
        if target.qualifier is None or target.qualifier == LATEST:
            raise invalid_parameter(
                "Provisioned Concurrency Configs cannot be applied to unpublished function "
                "versions: name an alias or version as Qualifier."
            )
        return target.qualifier

    async def _put(self, request: Request) -> Response:
        qualifier = self._qualifier(request)
        requested = await _requested(request)
        others = sum(
            configuration.requested
            for other, configuration in self._configurations.items()
            if other != qualifier
        )
        limit = self._function.settings.concurrency_limit
        if requested + others > limit:
            raise invalid_parameter(
                f"ProvisionedConcurrentExecutions {requested} (and {others} elsewhere) exceeds "
                f"the concurrency limit {limit}."
            )
        configuration = self._configurations[qualifier] = _Configuration(
            requested=requested,
            since=asyncio.get_running_loop().time(),
            last_modified=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._dispatcher.kept = requested + others
        self._environments.prewarm(requested)
        return JSONResponse(_described(configuration, "IN_PROGRESS"), 202)

    async def _get(self, request: Request) -> Response:
        configuration = self._configuration(self._qualifier(request))
        return JSONResponse(_described(configuration, *self._status(configuration)))

    async def _delete(self, request: Request) -> Response:
        qualifier = self._qualifier(request)
        self._configuration(qualifier)
        self._dispatcher.kept -= self._configurations.pop(qualifier).requested
        return Response(status_code=204)

    def _configuration(self, qualifier: str) -> _Configuration:
        configuration = self._configurations.get(qualifier)
        if configuration is None:
            raise not_found(
                f"No Provisioned Concurrency Config found for qualifier {qualifier}",
                error_type="ProvisionedConcurrencyConfigNotFoundException",
            )
        return configuration

    def _status(self, configuration: _Configuration) -> tuple[str, str | None]:
        waited_s = asyncio.get_running_loop().time() - configuration.since
        if waited_s < self._faults.settings.provisioning_s:
            return "IN_PROGRESS", None
        if self._environments.initialised(configuration.requested):
            return "READY", None
        error = self._environments.init_error()
        if error:
            return "FAILED", f"FUNCTION_ERROR_INIT_FAILURE: {error}"
        return "IN_PROGRESS", None


async def _requested(request: Request) -> int:
    try:
        body = json.loads(await request.body())
        requested = body["ProvisionedConcurrentExecutions"]
    except (ValueError, KeyError, TypeError):
        requested = None
    if isinstance(requested, bool) or not isinstance(requested, int) or requested < 1:
        raise invalid_parameter(
            f"ProvisionedConcurrentExecutions must be an integer of at least 1, got {requested!r}."
        )
    return requested


def _described(
    configuration: _Configuration, status: str, reason: str | None = None
) -> dict[str, object]:
    available = configuration.requested if status == "READY" else 0
    return {
        "RequestedProvisionedConcurrentExecutions": configuration.requested,
        "AllocatedProvisionedConcurrentExecutions": available,
        "AvailableProvisionedConcurrentExecutions": available,
        "Status": status,
        "LastModified": configuration.last_modified,
        **({} if reason is None else {"StatusReason": reason}),
    }
