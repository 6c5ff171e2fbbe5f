"""A Lambda handler whose behaviour the event chooses; runs inside real awslambdaric processes."""

import faulthandler
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if os.environ.get("PROBE_FAILS_AT_IMPORT"):
    raise ValueError("the probe was told to fail at import")
if os.environ.get("PROBE_EXITS_AT_IMPORT"):
    os._exit(int(os.environ["PROBE_EXITS_AT_IMPORT"]))
if os.environ.get("PROBE_HANGS_AT_IMPORT"):
    time.sleep(600)

_served = 0


def handler(event: Any, context: Any) -> Any:
    global _served
    _served += 1
    if not isinstance(event, dict):
        return event
    if "touch" in event:
        Path(event["touch"]).touch()
    if "append_to" in event:
        with Path(event["append_to"]).open("a") as deliveries:
            deliveries.write(context.aws_request_id + "\n")
    if "await_file" in event:
        while not Path(event["await_file"]).exists():
            time.sleep(0.005)
    if "print" in event:
        sys.stdout.write(event["print"] + "\n")
        sys.stderr.write("to stderr\n")
    return _ACTIONS[event.get("do", "echo")](event, context)


def _describe(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "served": _served,
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "remaining_ms": context.get_remaining_time_in_millis(),
        "memory_mb": context.memory_limit_in_mb,
        "environment": dict(os.environ),
    }


def _raise(event: dict[str, Any], context: Any) -> None:
    raise ValueError(event.get("message", "raised on request"))


def _exit(event: dict[str, Any], context: Any) -> None:
    os._exit(event.get("code", 3))


def _decline_once(event: dict[str, Any], context: Any) -> dict[str, Any]:
    mark = Path(event["mark"])
    if not mark.exists():
        mark.touch()
        os._exit(os.EX_TEMPFAIL)
    return _describe(event, context)


def _child(event: dict[str, Any], context: Any) -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def _chatter(event: dict[str, Any], context: Any) -> None:
    while True:
        os.write(1, b"x\n")


_ACTIONS = {
    "echo": lambda event, context: event,
    "describe": _describe,
    "sleep": lambda event, context: time.sleep(event["seconds"]),
    "raise": _raise,
    "exit": _exit,
    "decline_once": _decline_once,
    "segfault": lambda event, context: faulthandler._sigsegv(),  # type: ignore[attr-defined]
    "big": lambda event, context: "x" * event["size"],
    "child": _child,
    "chatter": _chatter,
}
