"""Answers that a client asks for again and again: only what has changed is sent."""

import hashlib
from http import HTTPStatus

from fastapi import Request, Response

from shared.contracts.message import Message


def tagged(request: Request, message: Message) -> Response:
    """Return a message with the tag of its bytes; 304 and no body to whoever has these already."""
    body = message.model_dump_json().encode()
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    known = {each.strip().removeprefix("W/") for each in _listed(request)}
    if known & {tag, "*"}:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _listed(request: Request) -> list[str]:
    return [tag for value in request.headers.getlist("if-none-match") for tag in value.split(",")]
