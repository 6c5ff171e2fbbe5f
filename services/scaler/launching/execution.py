"""How an invocation ended, read from Lambda's answer. Pure."""

import base64
import json
import re
from dataclasses import dataclass, replace
from typing import Literal

from botocore.exceptions import ClientError

from services.scaler.launching.connections import Answer
from shared.cache.arrivals import FAILURE_KINDS, MAX_REASON_CHARS, FailureKind

MAX_REASON = 300
_BILLED = re.compile(rb"Billed Duration: (\d+) ms")
_THROTTLED = frozenset({"TooManyRequestsException", "ThrottlingException"})
_WAKING = frozenset(
    {"CodeArtifactUserPendingException", "ENINotReadyException", "ResourceNotReadyException"}
)
"""Nothing ran: after idle weeks Lambda takes a function's network away, and the first call makes it
connect the function again, which takes about a minute."""

ExecutionKind = Literal["done", "failed", "broken", "throttled", "waking", "refused", "unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How one invocation ended."""

    kind: ExecutionKind
    """`failed`: worth one retry; `broken`: the same, but the connection broke, which says nothing
    about the actor; `waking`: Lambda is waking a function after idle weeks; `refused`: the request
    is wrong; `unreachable`: no connection, so nothing started.
    """
    payload: bytes = b""
    """The function's reply or, with an error, Lambda's description of it."""
    reason: str = ""
    """Why it is not `done`."""
    billed_s: float | None = None
    """Reported billed duration; None if unknown."""
    requests: int = 1
    """1 when AWS bills a request, else 0."""
    sent_at: float | None = None
    """`time.perf_counter` when the request was ready; None if never."""
    failure: FailureKind = "lost"
    """How the function failed, where it did."""
    retry_after_s: float = 0.0
    """`Retry-After` of a throttle."""


def answered(answer: Answer) -> Execution:
    """Return the end of an invocation that ran: its reply, or the function's error."""
    reply, headers = answer.body, answer.headers
    billed_s = _billed_s(headers.get("x-amz-log-result"))
    function_error = headers.get("x-amz-function-error")
    if function_error is None:
        return Execution(kind="done", payload=reply, billed_s=billed_s)
    described = _described(reply)
    failure = FAILURE_KINDS.get(str(described.get("errorType")), "lost")
    # Errors of the environment need no prefix of ours.
    said = f"{function_error}: {error_message(reply)}"
    reason = said if failure == "lost" else str(described.get("errorMessage", ""))
    return Execution(
        kind="failed",
        payload=reply,
        reason=reason[:MAX_REASON_CHARS],
        billed_s=billed_s,
        failure=failure,
    )


def refused(error: ClientError) -> Execution:
    """Return the end of an invocation that Lambda refused, or failed."""
    code = error.response["Error"]["Code"]
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    if code in _THROTTLED or status == 429:
        headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
        retry_after_s = _seconds(headers.get("retry-after", ""))
        return replace(never_started("throttled", error), retry_after_s=retry_after_s)
    if code in _WAKING:
        return never_started("waking", error)
    if status >= 500:
        # It may come after the function ran.
        return Execution(kind="failed", reason=short(error))
    return never_started("refused", error)


def never_started(kind: ExecutionKind, error: Exception) -> Execution:
    """Return the end of an invocation that started nothing and costs nothing."""
    return Execution(kind=kind, reason=short(error), billed_s=0.0, requests=0)


def error_message(reply: bytes) -> str:
    """Return Lambda's description of a failed function, `Type: message`."""
    error = _described(reply)
    parts = [str(error[part]) for part in ("errorType", "errorMessage") if error.get(part)]
    return ": ".join(parts) or reply[:MAX_REASON].decode("utf-8", "replace") or "no message"


def short(error: Exception) -> str:
    """Return an error's name and the beginning of its text."""
    return f"{type(error).__name__}: {error}"[:MAX_REASON]


def _described(reply: bytes) -> dict[str, object]:
    """Return Lambda's description of a failed function; empty when it is none."""
    try:
        error = json.loads(reply)
    except ValueError:
        return {}
    return error if isinstance(error, dict) else {}


def _billed_s(log_result: str | None) -> float | None:
    if not log_result:
        return None
    found = _BILLED.search(base64.b64decode(log_result))
    return int(found.group(1)) / 1000.0 if found else None


def _seconds(header: str) -> float:
    """Return the seconds of a `Retry-After` header; 0 without one, or for a date."""
    return float(header) if header.isdecimal() else 0.0
