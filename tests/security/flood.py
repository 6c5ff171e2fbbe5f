"""Floods at a scaler process of our own: `python -m tests.security.flood --help`.

Clients put as many requests into a connection as they are let, back to back, and read nothing.
`strangers` have no token, `visitors` have none either and ask what everybody may, `crumbs` send a
body byte by byte instead, and `holders` have the token. Each flood has a fresh process, on
loopback, and ends by itself.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.first_results import positive

REPOSITORY = Path(__file__).parents[2]
_TOKEN = "a-token-of-the-flood"
_FLOODS = {
    "strangers": (b"", b"GET / HTTP/1.1\r\n\r\n"),
    "visitors": (b"", b"GET /openapi.json HTTP/1.1\r\nHost: scaler\r\n\r\n"),
    "crumbs": (
        b"POST / HTTP/1.1\r\nHost: scaler\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\n \r\n",
    ),
    "holders": (
        b"",
        f"GET /metrics HTTP/1.1\r\nHost: scaler\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n".encode(),
    ),
}
"""What is sent once, and what is sent again and again."""
_PATIENCE_S = 60.0
_MOST_CONNECTIONS = 500
"""Each is a descriptor here and one there, and 1,024 is a common limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a flood did to the process."""

    flood: str
    connections: int
    kib_each: int
    memory_before_mb: float
    memory_peak_mb: float
    """Largest resident memory from the first byte to the end of the process."""
    worst_healthz_s: float
    tracebacks: int
    log_lines: int
    """Lines written from the first byte to the end of the process."""

    @property
    def memory_added_mb(self) -> float:
        """What the flood took."""
        return self.memory_peak_mb - self.memory_before_mb


@dataclass(frozen=True, slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    address: tuple[str, int]
    log: Path

    def memory_mb(self, name: str) -> float:
        """Return a line of the kernel's account: `VmRSS` is resident now, `VmHWM` at its most."""
        text = Path(f"/proc/{self.popen.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None
        return int(found.group(1)) / 1024

    def log_lines(self) -> list[str]:
        """Return what it has written so far."""
        return self.log.read_text().splitlines()

    def end(self) -> None:
        """Ask it to end in an orderly way, and wait until it has."""
        self.popen.send_signal(signal.SIGTERM)
        self.popen.wait(_PATIENCE_S)


def flood(name: str, *, connections: int, kib: int = 256, hold_s: float = 10.0) -> Outcome:
    """Flood a scaler.

    Args:
        name: Who does: `strangers`, `visitors`, `crumbs` or `holders`.
        connections: How many are open at once.
        kib: What is sent into each, if the scaler takes it.
        hold_s: How long they stay open, unread.

    Raises:
        RuntimeError: The scaler did not start.
        httpx.HTTPError: It did not answer `/healthz` within a minute.
    """
    head, again = _FLOODS[name]
    payload = head + again * (kib * 1024 // len(again))
    with tempfile.TemporaryDirectory() as folder, _scaler(Path(folder)) as process:
        before_mb = process.memory_mb("VmRSS")
        lines = process.log_lines()
        with contextlib.ExitStack() as opened:
            clients = _Clients(process.address, payload, connections, opened)
            worst_healthz_s = _worst_healthz_s(process.address, clients, hold_s=hold_s)
            peak_mb = process.memory_mb("VmHWM")
            # Asked to end while all of them still wait for somebody to read.
            process.end()
        written = process.log_lines()[len(lines) :]
    return Outcome(
        flood=name,
        connections=connections,
        kib_each=kib,
        memory_before_mb=round(before_mb, 1),
        memory_peak_mb=round(peak_mb, 1),
        worst_healthz_s=round(worst_healthz_s, 3),
        tracebacks=sum("Traceback" in line for line in written),
        log_lines=len(written),
    )


class _Clients:
    """Clients that send all they are let send, and read nothing."""

    def __init__(
        self,
        address: tuple[str, int],
        payload: bytes,
        count: int,
        opened: contextlib.ExitStack,
    ) -> None:
        self._selector = opened.enter_context(selectors.DefaultSelector())
        for _ in range(count):
            connection = opened.enter_context(socket.socket())
            # What the kernel would take in for us would be read, for all the scaler knows.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(address)
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_WRITE, memoryview(payload))

    def send(self, *, until: float) -> None:
        """Send until this monotonic time; what was hung up on is left alone."""
        while self._selector.get_map() and (left_s := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                self._send(key)

    def _send(self, key: selectors.SelectorKey) -> None:
        assert isinstance(key.fileobj, socket.socket)
        try:
            sent = key.fileobj.send(key.data)
        except (BrokenPipeError, ConnectionResetError):
            sent = len(key.data)
        rest = key.data[sent:]
        if rest:
            self._selector.modify(key.fileobj, selectors.EVENT_WRITE, rest)
        else:
            self._selector.unregister(key.fileobj)


def _worst_healthz_s(address: tuple[str, int], clients: _Clients, *, hold_s: float) -> float:
    """Return how long `/healthz` took at most, asked again and again from before the first byte."""
    until = time.monotonic() + hold_s
    asked = threading.Event()

    def ask() -> float:
        worst_s = 0.0
        url = f"http://{address[0]}:{address[1]}/healthz"
        with httpx.Client(timeout=_PATIENCE_S, trust_env=False) as http:
            while time.monotonic() < until:
                began = time.monotonic()
                http.get(url).raise_for_status()
                worst_s = max(worst_s, time.monotonic() - began)
                asked.set()
        return worst_s

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        asked.wait(hold_s)
        clients.send(until=until)
        return asking.result()


@contextlib.contextmanager
def _scaler(folder: Path) -> Iterator[_Process]:
    """Start a scaler that listens on loopback; kill it at the end if it has not ended."""
    log = folder / "scaler.log"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NITRO_", "AWS_"))}
    settings = {
        "NITRO_HOST": "127.0.0.1",
        "NITRO_PORT": "0",
        "NITRO_TOKEN": _TOKEN,
        "NITRO_DATABASE": str(folder / "nitro.sqlite3"),
        "NITRO_RUNS_DIR": str(folder / "runs"),
    }
    with log.open("wb") as out:
        popen = subprocess.Popen(
            [sys.executable, "-m", "services.scaler.app"],
            cwd=REPOSITORY,
            env={**clean, **settings},
            stderr=out,
        )
    try:
        yield _Process(popen, _address(popen, log), log)
    finally:
        popen.kill()
        popen.wait()


def _address(popen: subprocess.Popen[bytes], log: Path) -> tuple[str, int]:
    """Return where the process listens, once it answers."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up_at and popen.poll() is None:
        if found := re.search(r"url='http://([\d.]+):(\d+)'", log.read_text()):
            host, port = found.group(1), int(found.group(2))
            # The socket listens since before that line: this waits until the server takes it.
            httpx.get(f"http://{host}:{port}/healthz", timeout=_PATIENCE_S, trust_env=False)
            return host, port
        time.sleep(0.05)
    raise RuntimeError(f"the scaler did not start:\n{log.read_text()}")


def main(arguments: list[str]) -> int:
    """Run every flood; return 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.security.flood",
        description="Flood a scaler started for it on loopback, and tell what that cost it.",
    )
    most = _up_to(_MOST_CONNECTIONS)
    parser.add_argument("--strangers", type=most, default=20, help="connections without a token")
    parser.add_argument("--visitors", type=most, default=20, help="connections to an open page")
    parser.add_argument("--crumbs", type=most, default=20, help="connections with a crumbled body")
    parser.add_argument("--holders", type=most, default=300, help="connections with the token")
    parser.add_argument("--kib", type=_up_to(1024), default=256, help="sent into each connection")
    parser.add_argument("--seconds", type=_up_to(60), default=10, help="how long each flood lasts")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    outcomes = []
    for name in _FLOODS:
        connections = getattr(given, name)
        outcome = flood(name, connections=connections, kib=given.kib, hold_s=given.seconds)
        sys.stdout.write(f"{_line(outcome)}\n")
        sys.stdout.flush()
        outcomes.append(dataclasses.asdict(outcome))
    if given.out is not None:
        given.out.write_text(json.dumps(outcomes, indent=1) + "\n")
    return 0


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.connections} {outcome.flood} of {outcome.kib_each} KiB: "
        f"memory {outcome.memory_before_mb:.0f} -> {outcome.memory_peak_mb:.0f} MB, "
        f"worst /healthz {outcome.worst_healthz_s:.2f} s, {outcome.tracebacks} tracebacks, "
        f"{outcome.log_lines} lines of log"
    )


def _up_to(most: int) -> Callable[[str], int]:
    def bounded(text: str) -> int:
        number = positive(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"{number} is above {most}")
        return number

    return bounded


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
