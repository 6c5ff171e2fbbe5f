"""One invocation: its event, its outcome, and Lambda's log of it."""

import asyncio
import json
import math
from dataclasses import dataclass, field

LOG_TAIL_BYTES = 4096
PAYLOAD_LIMIT = 6_291_456
RESPONSE_LIMIT = 6_291_556
"""Lambda allows 100 bytes more for a response than for a request."""
_STATUS = {"Sandbox": "timeout", "Runtime": "error"}
"""An error's status in a REPORT line, by the prefix of its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an invocation ended."""

    payload: bytes
    error_type: str | None = None
    """None if the function returned; otherwise the type of the function error."""
    log_tail: bytes = b""


@dataclass(slots=True, kw_only=True, eq=False)
class Invocation:
    """An accepted invocation from its arrival to its outcome."""

    request_id: str
    payload: bytes
    arn: str
    version: str
    trace_id: str
    kind: str = ""
    """Equal for events that should run on the same environment; empty for any."""
    wants_log: bool = False
    """Whether the caller requested the log's tail."""
    duplicate: bool = False
    """Whether this is an injected second delivery of an event."""
    declined: int = 0
    """Number of environments that declined it."""
    arrived_at: float = 0.0
    started_at: float = 0.0
    init_s: float | None = None
    """Duration of the initialisation that it waited for; None if its environment was warm."""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    """Last bytes of the environment's output during the invocation."""
    outcome: asyncio.Future[Outcome] | None = None
    """The caller's future; None without a waiting caller."""

    def again(self) -> "Invocation":
        """Return a second delivery of the same event, without a waiting caller."""
        return Invocation(
            request_id=self.request_id,
            payload=self.payload,
            arn=self.arn,
            version=self.version,
            trace_id=self.trace_id,
            kind=self.kind,
            duplicate=True,
        )

    def wrote(self, chunk: bytes) -> None:
        """Append the environment's output, up to the length of the log tail."""
        self.output += chunk
        if len(self.output) > LOG_TAIL_BYTES:
            del self.output[:-LOG_TAIL_BYTES]


def platform_error(error_type: str, message: str) -> Outcome:
    """Return the outcome of an initialisation or invocation that the platform ended."""
    body = {"errorType": error_type, "errorMessage": message}
    return Outcome(payload=json.dumps(body).encode(), error_type=error_type)


def function_error(error_type: str, message: str, *, request_id: str) -> Outcome:
    """Return the outcome of an invocation that the platform ended."""
    return platform_error(error_type, f"RequestId: {request_id} Error: {message}")


def log_tail(
    invocation: Invocation,
    outcome: Outcome,
    *,
    duration_s: float,
    memory_mb: int,
    max_memory_mb: int,
    note: str = "",
) -> bytes:
    """Return the last 4 KB of an invocation's log: START, its output, END, REPORT.

    Args:
        invocation: The invocation, with its output.
        outcome: Its outcome; the error type decides the REPORT's status.
        duration_s: From its start on the environment to its end.
        memory_mb: Configured memory size.
        max_memory_mb: Peak resident memory; 0 if unknown.
        note: The platform's message after the function's output.
    """
    output = bytes(invocation.output)
    if output and not output.endswith(b"\n"):
        output += b"\n"
    duration_ms = duration_s * 1000
    init_ms = (invocation.init_s or 0.0) * 1000
    report = [
        f"REPORT RequestId: {invocation.request_id}",
        f"Duration: {duration_ms:.2f} ms",
        # An invocation is also billed for the initialisation that it waited for.
        f"Billed Duration: {math.ceil(duration_ms + init_ms)} ms",
        f"Memory Size: {memory_mb} MB",
        f"Max Memory Used: {max_memory_mb} MB",
    ]
    if invocation.init_s is not None:
        report.append(f"Init Duration: {init_ms:.2f} ms")
    status = _STATUS.get((outcome.error_type or "").partition(".")[0])
    if status is not None:
        report.append(f"Status: {status}")
    start = f"START RequestId: {invocation.request_id} Version: {invocation.version}\n"
    end = f"{note}END RequestId: {invocation.request_id}\n" + "\t".join(report) + "\t\n"
    return (start.encode() + output + end.encode())[-LOG_TAIL_BYTES:]
