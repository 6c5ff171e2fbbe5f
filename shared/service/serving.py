"""The start of an HTTP service, with early errors for settings and port, and an exit status."""

import resource
import signal
import socket

from pydantic import ValidationError

CANNOT_START = 2
"""Exit status if settings, port or folder prevent a start."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; call it before any work starts, so that a taken port fails early.

    Raises:
        OSError: The address is unavailable.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    return listener


def allow_many_connections() -> None:
    """Raise the limit of open files, often 1,024: a thousand peers need a thousand sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_exit_code() -> None:
    """Ignore signals outside the server: uvicorn raises each of them again after its end.

    They stay ignored while the interpreter exits, which takes a second with torch. The interpreter
    would remove a handler in Python before that.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def settings_text(error: ValidationError) -> str:
    """Return the errors of settings by variable, without any value: it may be secret."""
    lines = []
    for wrong in error.errors(include_input=False):
        variable, dot, within = ".".join(map(str, wrong["loc"])).partition(".")
        prefix = f"NITRO_{variable.upper()}{dot}{within}: " if variable else ""
        lines.append(f"{prefix}{wrong['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)
