"""TCP ports of this machine's loopback interface."""

import contextlib
import socket

from nitro.errors import CommandError

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on, all different.

    They are free when this returns; whoever starts a server on one must report if it is taken.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


def require_free(port: int, *, setting: str) -> None:
    """Make sure a server can listen on a port.

    Raises:
        CommandError: It is in use or not allowed; names the setting.
    """
    with socket.socket() as listener:
        # As servers do, so that connections of an ended one do not count as in use.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise CommandError(
                f"{setting}: port {port} cannot be used ({error.strerror}); choose another one"
            ) from error
