"""One invocation: what was asked, how it went, and what Lambda logs about it."""

import asyncio
import json
import math
from dataclasses import dataclass, field

LOG_TAIL_BYTES = 4096
PAYLOAD_LIMIT = 6_291_456
RESPONSE_LIMIT = 6_291_556
"""Lambda allows a reply 100 bytes more than a request."""
_STATUS = {"Sandbox": "timeout", "Runtime": "error"}
"""An error's status in a REPORT, by how its type begins."""


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
    kind: str = ""
    """Equal for events that one environment runs best; empty where any does."""
    wants_log: bool = False
    """The caller asked for the log's tail."""
    duplicate: bool = False
    """A second delivery of the same event, on purpose."""
    declined: int = 0
    """Environments that left it to another."""
    arrived_at: float = 0.0
    started_at: float = 0.0
    init_s: float | None = None
    """Initialisation this invocation waited for; None when its environment was warm."""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    """Last bytes the environment wrote while this ran."""
    outcome: asyncio.Future[Outcome] | None = None
    """Where the caller waits; None when nobody does."""

    def again(self) -> "Invocation":
        """Return a second delivery of the same event, which nobody waits for."""
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
        """Keep what the environment wrote, as far as the log tail reaches."""
        self.output += chunk
        if len(self.output) > LOG_TAIL_BYTES:
            del self.output[:-LOG_TAIL_BYTES]


def platform_error(error_type: str, message: str) -> Outcome:
    """Return the outcome of an initialisation or invocation that the platform had to end."""
    body = {"errorType": error_type, "errorMessage": message}
    return Outcome(payload=json.dumps(body).encode(), error_type=error_type)


def function_error(error_type: str, message: str, *, request_id: str) -> Outcome:
    """Return the outcome of an invocation that the platform had to end."""
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
        invocation: With its output.
        outcome: How it ended; its error type decides the REPORT's status.
        duration_s: From its start on the environment to its end.
        memory_mb: Configured memory size.
        max_memory_mb: Peak resident memory; 0 when the environment is out of sight.
        note: What the platform has to say after the function's own output.
    """
    output = bytes(invocation.output)
    if output and not output.endswith(b"\n"):
        output += b"\n"
    duration_ms = duration_s * 1000
    init_ms = (invocation.init_s or 0.0) * 1000
    report = [
        f"REPORT RequestId: {invocation.request_id}",
        f"Duration: {duration_ms:.2f} ms",
        # An invocation that waited for an initialisation is billed for it too.
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
