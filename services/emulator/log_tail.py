"""The log lines Lambda writes about an invocation, and the tail of them a caller may ask for."""

import math

from services.emulator.invocation import LOG_TAIL_BYTES, Invocation, Outcome

_STATUS = {"Sandbox": "timeout", "Runtime": "error"}


def report_line(
    *,
    request_id: str,
    duration_s: float,
    memory_mb: int,
    max_memory_mb: int,
    init_s: float | None,
    status: str | None = None,
) -> str:
    """Return Lambda's REPORT line; what waited for an initialisation is billed for it too.

    Args:
        request_id: Of the invocation.
        duration_s: From its start on the environment to its end.
        memory_mb: Configured memory size.
        max_memory_mb: Peak resident memory; 0 when the environment is out of sight.
        init_s: Initialisation it waited for, if any.
        status: `timeout` or `error`; None for success and handled failures.
    """
    duration_ms = duration_s * 1000
    init_ms = (init_s or 0.0) * 1000
    fields = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {duration_ms:.2f} ms",
        f"Billed Duration: {math.ceil(duration_ms + init_ms)} ms",
        f"Memory Size: {memory_mb} MB",
        f"Max Memory Used: {max_memory_mb} MB",
    ]
    if init_s is not None:
        fields.append(f"Init Duration: {init_ms:.2f} ms")
    if status is not None:
        fields.append(f"Status: {status}")
    return "\t".join(fields) + "\t\n"


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
    report = report_line(
        request_id=invocation.request_id,
        duration_s=duration_s,
        memory_mb=memory_mb,
        max_memory_mb=max_memory_mb,
        init_s=invocation.init_s,
        status=_STATUS.get((outcome.error_type or "").partition(".")[0]),
    )
    start = f"START RequestId: {invocation.request_id} Version: {invocation.version}\n"
    end = f"{note}END RequestId: {invocation.request_id}\n{report}"
    return (start.encode() + output + end.encode())[-LOG_TAIL_BYTES:]
