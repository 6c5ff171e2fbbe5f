"""Reading stored data, possibly damaged or from a newer version of Nitro.

An unreadable record affects only its own job. Requests for that job fail; scans of all jobs log it
and skip it.
"""

import logging
from typing import TypeVar

from pydantic import ValidationError

from services.scaler.book.table import StoreError
from shared.contracts.message import Message

_LOG = logging.getLogger(__name__)
M = TypeVar("M", bound=Message)


class UnreadableError(StoreError):
    """Stored data is unreadable; the message names it and the fault."""


def parsed(kind: type[M], text: str, job_id: str) -> M:
    """Parse a job's stored data.

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
    """Log a skipped job."""
    _LOG.error("job left aside", extra={"job": job_id, "why": str(error)})
