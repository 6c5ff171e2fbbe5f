"""One invocation: what was asked and how it went."""

import asyncio
import json
from dataclasses import dataclass, field

LOG_TAIL_BYTES = 4096
SYNC_PAYLOAD_LIMIT = 6_291_456
ASYNC_PAYLOAD_LIMIT = 1_048_576
RESPONSE_LIMIT = 6_291_556
"""Lambda allows a reply 100 bytes more than a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an invocation ended."""

    payload: bytes
    error_type: str | None = None
    """None when the function returned; else the function error's type."""
    log_tail: bytes = b""


@dataclass(slots=True, kw_only=True, eq=False)
class Invocation:
    """An accepted invocation from its arrival to its outcome."""

    request_id: str
    payload: bytes
    arn: str
    version: str
    trace_id: str
    client_context: str = "null"
    asynchronous: bool = False
    wants_log: bool = False
    """The caller asked for the log's tail."""
    attempts_left: int = 0
    """Retries after a failed asynchronous attempt."""
    duplicate: bool = False
    """A second delivery of the same event, on purpose."""
    arrived_at: float = 0.0
    started_at: float = 0.0
    init_s: float | None = None
    """Initialisation this invocation waited for; None when its environment was warm."""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    """Last bytes the environment wrote while this ran."""
    outcome: asyncio.Future[Outcome] | None = None
    """Where the caller waits; None when nobody does."""

    def again(self, *, duplicate: bool) -> "Invocation":
        """Return a fresh delivery of the same event that nobody waits for."""
        return Invocation(
            request_id=self.request_id,
            payload=self.payload,
            arn=self.arn,
            version=self.version,
            trace_id=self.trace_id,
            client_context=self.client_context,
            asynchronous=True,
            attempts_left=0 if duplicate else self.attempts_left - 1,
            duplicate=duplicate,
        )

    def wrote(self, chunk: bytes) -> None:
        """Keep what the environment wrote, as far as the log tail reaches."""
        self.output += chunk
        if len(self.output) > LOG_TAIL_BYTES:
            del self.output[:-LOG_TAIL_BYTES]


def function_error(error_type: str, message: str, *, request_id: str) -> Outcome:
    """Return the outcome of an invocation that the platform had to end."""
    body = {"errorType": error_type, "errorMessage": f"RequestId: {request_id} Error: {message}"}
    return Outcome(payload=json.dumps(body).encode(), error_type=error_type)
