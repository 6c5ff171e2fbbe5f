"""Reading back what is stored: maybe by a newer version of Nitro, maybe damaged.

A record that cannot be read concerns its own job alone. Whoever asks for that job is told; what
looks at all jobs names it in the log and goes on without it.
"""

import logging
from typing import TypeVar

from pydantic import ValidationError

from services.scaler.book.table import StoreError
from shared.contracts.message import Message

_LOG = logging.getLogger(__name__)
M = TypeVar("M", bound=Message)


class UnreadableError(StoreError):
    """Something stored cannot be read; the message names it and says what is wrong with it."""


def parsed(kind: type[M], text: str, job_id: str) -> M:
    """Return what is stored of a job.

    Raises:
        UnreadableError: It is no such thing.
    """
    try:
        return kind.read(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "document"
        raise UnreadableError(
            f"job {job_id} holds a {kind.__name__} that this version of Nitro cannot read "
            f"({field}: {first['msg']}): run the version that wrote it, or restore a backup"
        ) from error


def left_aside(job_id: str, error: UnreadableError) -> None:
    """Name a job in the log that is gone on without."""
    _LOG.error("job left aside", extra={"job": job_id, "why": str(error)})
