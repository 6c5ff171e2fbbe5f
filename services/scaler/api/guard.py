"""Guards of every request: the bearer token and the size limit."""

import hmac
import re
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.scaler.api.problem import problem_response
from services.scaler.settings import Settings
from services.scaler.web.serving import is_page
from shared.contracts.views.system import Role
from shared.service.tokens import TOKEN_HEADER, TokenError, read_token

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""Answered without a token: they reveal nothing about jobs."""
SMALL_BODY_BYTES = 64 * 1024
JOB_BODY_BYTES = 128 * 1024
"""Largest body of a job or a scaling policy, which may contain an agent's weights."""
LARGE_BODY_BYTES = 1024 * 1024
_TOKEN_HEADER = TOKEN_HEADER.lower().encode()
_BEARER = b"Bearer "
_JOB_BODIES = re.compile(r"^/v1/jobs(/[^/]+/scaling)?$")
_LARGE_BODIES = re.compile(r"^/v1/jobs/[^/]+/(rounds/[^/]+|finish)$")


_LOOKING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The accepted tokens; without an operator's token, no request needs one."""

    operator: str | None = field(repr=False)
    viewer: str | None = field(default=None, repr=False)

    def role(self, given: bytes) -> Role | None:
        """Return the token's role."""
        tokens: dict[Role, str | None] = {"operator": self.operator, "viewer": self.viewer}
        for role, token in tokens.items():
            if token is not None and hmac.compare_digest(given, token.encode()):
                return role
        return None


def load_tokens(settings: Settings) -> Tokens:
    """Return the required tokens; none if authentication is explicitly disabled.

    Raises:
        TokenError: Authentication is on and no token is set, its file is unusable, or both tokens
            are equal.
    """
    viewer = read_token(
        settings.viewer_token, settings.viewer_token_file, name="NITRO_VIEWER_TOKEN"
    )
    if settings.auth == "disabled":
        return Tokens(operator=None)
    operator = read_token(settings.token, settings.token_file)
    if operator is None:
        raise TokenError(
            "no token: set NITRO_TOKEN or NITRO_TOKEN_FILE, or NITRO_AUTH=disabled to admit every "
            "caller of the port"
        )
    if viewer == operator:
        raise TokenError(
            "NITRO_VIEWER_TOKEN equals NITRO_TOKEN, so viewers could change jobs; choose another "
            "token"
        )
    return Tokens(operator=operator, viewer=viewer)


class BearerGuard:
    """Refuses requests without the token in their header.

    The header is `Authorization`, or `X-Nitro-Token` if `Authorization` has something else, such as
    an AWS signature. Two tokens count as none. Websockets are always refused.
    """

    def __init__(self, app: ASGIApp, *, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403, or pass the request on with its role in `request.state`."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        if kind != "http":
            # A websocket, which the API does not have; the server answers 403.
            await send({"type": "websocket.close"})
            return
        role = self._role(scope)
        if role is None and not is_open(scope["path"]):
            await _unauthorized()(scope, receive, send)
        elif role == "viewer" and scope["method"] not in _LOOKING:
            await _only_looking(scope["method"])(scope, receive, send)
        else:
            scope.setdefault("state", {})["role"] = role
            await self._app(scope, receive, send)

    def _role(self, scope: Scope) -> Role | None:
        if self._tokens.operator is None:
            return "operator"
        authorizations = _values(scope, b"authorization")
        given = _values(scope, _TOKEN_HEADER)
        given += [a.removeprefix(_BEARER) for a in authorizations if a.startswith(_BEARER)]
        if len(authorizations) > 1 or len(given) != 1:
            return None
        return self._tokens.role(given[0])


def is_open(path: str) -> bool:
    """Whether a path is answered without a token."""
    return path in OPEN_PATHS or is_page(path)


def _unauthorized() -> JSONResponse:
    response = problem_response(
        HTTPStatus.UNAUTHORIZED,
        f"send the header 'Authorization: Bearer <token>' (or '{TOKEN_HEADER}: <token>' beside "
        "an AWS signature)",
    )
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _only_looking(method: str) -> JSONResponse:
    return problem_response(
        HTTPStatus.FORBIDDEN,
        f"this token is read-only: {method} needs the operator's token (NITRO_TOKEN)",
    )


class BodyLimit:
    """Reads a request's body first, up to the limit."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413 or pass a complete request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = _limit(scope["path"])
        try:
            body = await _read(scope, receive, limit)
        except ClientDisconnect:
            # Drop half a request: where a body is optional, it would have another meaning.
            return
        if body is None:
            response = problem_response(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body of {scope['path']} may have at most {limit} bytes",
            )
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)


def _values(scope: Scope, header: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == header]


def _limit(path: str) -> int:
    if _LARGE_BODIES.match(path):
        return LARGE_BODY_BYTES
    return JOB_BODY_BYTES if _JOB_BODIES.match(path) else SMALL_BODY_BYTES


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """Return the body, or None when it is longer than the limit.

    Raises:
        ClientDisconnect: The client disconnected before the end of the body.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
