"""Reading a task from a Lambda event, or refusing the event."""

import json
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

MAX_EVENT_BYTES = 4096


class TaskRefusedError(ValueError):
    """The event is not a valid task; nothing was done."""


def parse_task(event: object, tasks: TypeAdapter[T], *, kind: str) -> T:
    """Return the task that an event holds.

    Args:
        event: As Lambda passes it.
        tasks: The accepted kinds of task.
        kind: Name of the kind in errors.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_EVENT_BYTES:
        raise TaskRefusedError(f"event of {len(data)} bytes, at most {MAX_EVENT_BYTES} are allowed")
    try:
        return tasks.validate_json(data)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc'])) or 'event'}: {e['msg']}" for e in error.errors())
        raise TaskRefusedError(f"event is no {kind} task: {'; '.join(wrong)}") from None
