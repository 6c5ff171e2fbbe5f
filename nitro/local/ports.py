"""TCP ports of this machine's loopback interface."""

import contextlib
import itertools
import random
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from nitro.errors import EXIT_FAILED, CommandError

LOOPBACK = "127.0.0.1"
_LOWEST = 10_000
_USUAL_OUTGOING = 32_768
_REACHED_S = 5.0
"""A local connection takes a fraction of a millisecond."""
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def outgoing_ports_begin() -> int:
    """Return the lowest port that the system assigns to outgoing connections."""
    try:
        return int(_OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_OUTGOING


class _Candidates:
    """Cycles through ports from a random one: each is offered again only after all others."""

    def __init__(self) -> None:
        end = max(outgoing_ports_begin(), _LOWEST + 1000)
        start = random.SystemRandom().randrange(_LOWEST, end)
        self._ports = itertools.cycle((*range(start, end), *range(_LOWEST, start)))
        self.count = end - _LOWEST
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            with self._lock:
                port = next(self._ports)
            yield port


_CANDIDATES = _Candidates()


def free_ports(count: int) -> list[int]:
    """Return distinct free ports that were not returned before.

    They are free at the return; a server must report a port that is taken later. If possible, they
    are outside the range of outgoing connections, because a busy neighbour could take such a port
    before the server starts.

    Raises:
        CommandError: There are not enough free ports.
    """
    with held_ports(count) as ports:
        return ports


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Yield ports like `free_ports`, reserved among our processes inside the block.

    A socket that does not listen is bound to each port. On Linux a server can still listen there
    with SO_REUSEADDR, which ours set (socket(7)). On other systems nothing is reserved.

    Raises:
        CommandError: There are not enough free ports.
    """
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        candidates = iter(_CANDIDATES)
        while len(found) < count:
            port = next(candidates, None)
            if port is None:
                raise CommandError(
                    f"{count} free ports are needed, only {len(found)} of {_CANDIDATES.count} from "
                    f"{_LOWEST} on are free; stop programs that listen there"
                )
            listener = socket.socket()
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                listener.close()
                continue
            # Set after the bind: with it, another process's reserved port would look free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stack.enter_context(listener)
            found.append(port)
        if sys.platform != "linux":
            stack.close()
        yield found


def require_loopback() -> None:
    """Check that programs on this machine can connect to each other.

    Raises:
        CommandError: They cannot; names the interface.
    """
    try:
        with socket.create_server((LOOPBACK, 0)) as listener:
            socket.create_connection(listener.getsockname(), timeout=_REACHED_S).close()
    except OSError as error:
        raise CommandError(
            f"this machine does not reach itself at {LOOPBACK} ({error.strerror or error}): bring "
            "the loopback interface up, on Linux by: ip link set lo up",
            exit_code=EXIT_FAILED,
        ) from error


def require_free(port: int, *, setting: str) -> None:
    """Check that a server can listen on a port.

    Raises:
        CommandError: The port is in use or not allowed; names the setting.
    """
    with socket.socket() as listener:
        # Like servers do, so that connections of an ended server do not count as in use.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise CommandError(
                f"{setting}: port {port} cannot be used ({error.strerror}); choose another one"
            ) from error
