"""The emulator's API beyond Lambda: health, counts, and faults that can be set at run time."""

import json
from collections import Counter

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.emulator.api.endpoint import Endpoint
from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.environment import State
from services.emulator.environments.fleet import Fleet
from services.emulator.faults import Faults, FaultSettings

_COUNTS = (
    "invoked",
    "throttled",
    "succeeded",
    "function_errors",
    "timeouts",
    "cold_starts",
    "environments_lost",
    "environments_let_go",
    "crashes_on_purpose",
    "duplicates",
)


class OperatorApi:
    """Routes for health, counts and faults."""

    def __init__(
        self, dispatcher: Dispatcher, environments: Fleet, faults: Faults, *, name: str = ""
    ) -> None:
        """Serve one function; every function except the first has its `name` in its paths."""
        root = f"/emulator/functions/{name}" if name else "/emulator"
        self._dispatcher = dispatcher
        self._environments = environments
        self._faults = faults
        self.routes = [
            Route("/healthz", Endpoint(self._healthy), methods=["GET"]),
            Route("/readyz", Endpoint(self._ready), methods=["GET"]),
            Route(f"{root}/stats", Endpoint(self._stats), methods=["GET"]),
            Route(f"{root}/faults", Endpoint(self._get_faults), methods=["GET"]),
            Route(f"{root}/faults", Endpoint(self._put_faults), methods=["PUT"]),
        ]

    async def _healthy(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        missing = self._environments.missing()
        if missing is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "missing": missing}, 503)

    async def _stats(self, request: Request) -> Response:
        states = Counter(environment.state for environment in self._environments.all())
        return JSONResponse(
            {
                **{name: self._dispatcher.counts[name] for name in _COUNTS},
                "in_flight": self._dispatcher.in_flight,
                "queued": self._dispatcher.queued,
                "backlog": self._dispatcher.backlog,
                "environments": {
                    state.value: states[state] for state in State if state is not State.LOST
                },
            }
        )

    async def _get_faults(self, request: Request) -> Response:
        return JSONResponse(self._faults.settings.model_dump())

    async def _put_faults(self, request: Request) -> Response:
        try:
            settings = FaultSettings.model_validate_json(await request.body())
        except ValidationError as error:
            problems = json.loads(
                error.json(include_url=False, include_context=False, include_input=False)
            )
            return JSONResponse({"detail": problems}, 422)
        self._faults.replace(settings)
        return JSONResponse(settings.model_dump())
