"""An answer that is a file, while a learner may still write to it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from fastapi.responses import StreamingResponse

_PIECE_BYTES = 64 * 1024


def file_answer(path: Path) -> StreamingResponse:
    """Answer with a file as long as it is now; what is appended meanwhile is left out.

    A record grows by a line a round. Sent to its end, it would be longer than its answer's header
    says, and the server would hang up.

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


def _pieces(file: BinaryIO, left: int) -> Iterator[bytes]:
    with file:
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
            yield piece
