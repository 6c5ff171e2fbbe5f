"""Starting an HTTP service so that what is wrong shows at once: settings, port, exit status."""

import resource
import signal
import socket

from pydantic import ValidationError

CANNOT_START = 2
"""Exit status when settings, port or folder do not allow a start."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; made before any work is taken on, so that a taken port shows.

    Raises:
        OSError: The address cannot be listened on.
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
    """Raise the limit of open files: a thousand peers are as many sockets, 1,024 a common limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_exit_code() -> None:
    """Have signals end the server and nothing else: uvicorn sends itself each one once more.

    They stay ignored while the interpreter ends, which takes a second with torch. A handler in
    Python would not: the interpreter takes it away first.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def settings_text(error: ValidationError) -> str:
    """Return what is wrong with the settings, by variable; never a value that may be secret."""
    lines = []
    for wrong in error.errors(include_input=False):
        variable, dot, within = ".".join(map(str, wrong["loc"])).partition(".")
        prefix = f"NITRO_{variable.upper()}{dot}{within}: " if variable else ""
        lines.append(f"{prefix}{wrong['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)
