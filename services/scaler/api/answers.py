"""Responses that avoid resending known bytes, and send a growing file up to its current length."""

import hashlib
import os
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from shared.contracts.message import Message

_PIECE_BYTES = 64 * 1024


def tagged(request: Request, message: Message) -> Response:
    """Return a message with the tag of its bytes, or 304 without a body if the client has them."""
    body = message.model_dump_json().encode()
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    known = {each.strip().removeprefix("W/") for each in _listed(request)}
    if known & {tag, "*"}:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def file_answer(path: Path) -> StreamingResponse:
    """Answer with a file up to its current length, without later appends.

    A record grows by a line per round. Sent to its end, it would exceed the announced length, and
    the server would disconnect.

    Raises:
        OSError: It cannot be read.
    """
    file = path.open("rb")
    size = os.fstat(file.fileno()).st_size
    return StreamingResponse(
        _pieces(file, size),
        media_type="application/octet-stream",
        headers={
            "Content-Length": str(size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name)}",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _listed(request: Request) -> list[str]:
    return [tag for value in request.headers.getlist("if-none-match") for tag in value.split(",")]


def _pieces(file: BinaryIO, left: int) -> Iterator[bytes]:
    with file:
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
            yield piece
