"""Access control: callers need the token, and must use one of the emulator's addresses.

A web page in a browser on this machine can send requests to loopback ports. After DNS rebinding it
can also read the answers. It has no token, and its requests name its own domain in `Host`.
"""

import hmac
import re
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.emulator.api.endpoint import ServiceError
from services.emulator.settings import PREFIX, Settings
from shared.service.tokens import TokenError, read_token

_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")
"""A token fits into the access key id of a signature, and is too long to guess."""
_PORT = re.compile(r":\d+$")
_SIGNED_BY = re.compile(r"^AWS4-HMAC-SHA256 Credential=([^/,\s]+)/")
_BEARER = re.compile(r"^Bearer (\S+)$")


def load_token(settings: Settings) -> str | None:
    """Return the token that callers must send, or None if authentication is deliberately off.

    Raises:
        TokenError: The token is missing or malformed, or its file cannot be read.
    """
    if settings.auth == "disabled":
        return None
    name = f"{PREFIX}TOKEN"
    token = read_token(settings.token, settings.token_file, name=name)
    if not _TOKEN.fullmatch(token or ""):
        raise TokenError(
            f"{name} or {name}_FILE must give a token of 16 to 128 letters, digits, - and _; "
            f"{PREFIX}AUTH=disabled lets everybody in who reaches the port"
        )
    return token


class Guard:
    """Answers a request with an error if there is one; passes it on otherwise."""

    def __init__(self, app: ASGIApp, refusal: Callable[[Scope], ServiceError | None]) -> None:
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 or pass the request on."""
        error = self._refusal(scope)
        answer = self._app if error is None else error.response()
        await answer(scope, receive, send)


def host_guard(app: ASGIApp, *, hosts: frozenset[str]) -> Guard:
    """Refuse requests whose `Host` is not one of the emulator's names or addresses."""

    def refusal(scope: Scope) -> ServiceError | None:
        named = Headers(scope=scope).getlist("host")
        if len(named) == 1 and _PORT.sub("", named[0]).lower() in hosts:
            return None
        message = f"Host {named} is none of {sorted(hosts)}: {PREFIX}HOSTS adds names."
        return ServiceError("AccessDeniedException", message, status=403)

    return Guard(app, refusal)


def token_guard(app: ASGIApp, *, token: str) -> Guard:
    """Refuse requests without the token, except for health checks.

    AWS SDKs send it as the access key id of their signature; other clients send a bearer token. The
    signature is not checked: the emulator does not know its secret.
    """

    def refusal(scope: Scope) -> ServiceError | None:
        if scope["path"] in _OPEN_PATHS or _brings(scope, token.encode()):
            return None
        message = (
            "The security token included in the request is invalid: the emulator's token is the "
            "AWS access key id, or goes into the header 'Authorization: Bearer <token>'."
        )
        return ServiceError("UnrecognizedClientException", message, status=403)

    return Guard(app, refusal)


def _brings(scope: Scope, token: bytes) -> bool:
    given = Headers(scope=scope).getlist("authorization")
    if len(given) != 1:
        return False
    found = _SIGNED_BY.match(given[0]) or _BEARER.match(given[0])
    return found is not None and hmac.compare_digest(found.group(1).encode("latin-1"), token)
