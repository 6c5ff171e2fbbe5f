"""The scaler process: `python -m services.scaler.app`.

Exit codes: 0 after an orderly end, 2 when it cannot start (the message names what to change), and 3
when another scaler writes to the same table: after a restart it continues from the table.
"""

import asyncio
import gc
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from socket import socket

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from services.scaler.api import problem
from services.scaler.api.connection import BoundedConnection
from services.scaler.api.guard import BearerGuard, BodyLimit, load_tokens
from services.scaler.api.routes import api_routes
from services.scaler.book.book import Book
from services.scaler.book.table import StoreError
from services.scaler.capacity.reconciler import Alarm
from services.scaler.settings import Settings
from services.scaler.web.serving import page_routes
from services.scaler.wiring import Components
from shared.artifacts.store import ArtifactError
from shared.cache.connection import CacheError
from shared.service.logs import configure_logging
from shared.service.serving import (
    CANNOT_START,
    allow_many_connections,
    keep_exit_code,
    listen,
    settings_text,
)
from shared.service.tokens import TokenError

_LOG = logging.getLogger(__name__)
_FENCED = 3
_DRAIN_S = 5
"""How long current answers may take during shutdown."""


def create_app(
    settings: Settings,
    *,
    now: Callable[[], float] = time.time,
    alarm: Alarm | None = None,
    book: Book | None = None,
    live: bool = True,
) -> FastAPI:
    """Return the application; it starts and closes its parts, `app.state.parts`, with its lifespan.

    Args:
        settings: All of it.
        now: The clock jobs and leases go by, in Unix seconds.
        alarm: The capacity reconciler's timer; by default real time.
        book: The store of jobs, instead of the configured one.
        live: Whether to run jobs. False only shows the jobs of the store.

    Raises:
        TokenError: Authentication is on and there is no token.
        StoreError: The database or table cannot be used.
        CacheError: The cache URL is malformed.
        ArtifactError: The place of the artifacts is malformed.
    """
    tokens = load_tokens(settings)
    parts = Components(settings, now=now, alarm=alarm, book=book, live=live)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await parts.start()
        yield
        parts.book.changed.close()
        await parts.close()

    app = FastAPI(
        title="Nitro scaler",
        version="1",
        summary="Jobs, leases and rounds: decides each training round's number of actors.",
        lifespan=lifespan,
        # FastAPI's pages load scripts from other hosts; ours is in `services.scaler.web`.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # Behind an HTTPS endpoint the scaler does not know the address for a redirect.
        redirect_slashes=False,
    )
    app.routes.extend([*api_routes(parts), *page_routes()])
    app.add_route("/openapi.json", _description(app), include_in_schema=False)
    problem.install(app)
    # The last middleware runs first: no body is read without a token.
    app.add_middleware(BodyLimit)
    app.add_middleware(BearerGuard, tokens=tokens)
    app.state.parts = parts
    return app


def _description(app: FastAPI) -> Callable[[Request], Awaitable[JSONResponse]]:
    """Return the endpoint that describes the API.

    The first description takes a second of a thread, and the app keeps it. The lock lets all that
    ask meanwhile wait for that one.
    """
    lock = asyncio.Lock()

    async def describe(_request: Request) -> JSONResponse:
        async with lock:
            return await run_in_threadpool(lambda: JSONResponse(app.openapi()))

    return describe


def main() -> int:
    """Run the scaler until SIGTERM or SIGINT; return the exit code."""
    try:
        settings = Settings()
    except ValidationError as error:
        return _refuse(settings_text(error))
    configure_logging(settings.log_level)
    allow_many_connections()
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        return _refuse(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
            "choose another NITRO_PORT or NITRO_HOST"
        )
    with listener:
        try:
            app = create_app(settings)
        except (TokenError, StoreError, CacheError, ArtifactError) as error:
            return _refuse(str(error))
        host, port = listener.getsockname()[:2]
        _LOG.info("scaler listens", extra={"url": f"http://{host}:{port}"})
        config = uvicorn.Config(
            app,
            http=BoundedConnection,
            ws="none",
            log_config=None,
            timeout_graceful_shutdown=_DRAIN_S,
            access_log=False,
        )
        keep_exit_code()
        # Without freezing, each full collection would scan the permanent objects and block the loop
        # for 75 ms.
        gc.freeze()
        server = _Server(config, app.state.parts)
        server.run(sockets=[listener])
        if not server.started:
            return _refuse("its parts did not start; the log above says why")
    return _FENCED if app.state.parts.book.fenced else 0


class _Server(uvicorn.Server):
    """Ends waiting learners' requests as soon as shutdown begins."""

    def __init__(self, config: uvicorn.Config, parts: Components) -> None:
        super().__init__(config)
        self._parts = parts
        parts.book.on_fenced = self._end

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._parts.book.changed.close()
        await super().shutdown(sockets)

    def _end(self) -> None:
        self.should_exit = True


def _refuse(why: str) -> int:
    sys.stderr.write(f"scaler cannot start: {why}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
