import contextlib
import itertools
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nitro.errors import CommandError
from nitro.local import ports
from nitro.local.ports import (
    LOOPBACK,
    free_ports,
    held_ports,
    outgoing_ports_begin,
    require_free,
)
from shared.service.serving import listen


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        require_free(port, setting="--port")


def test_no_port_is_given_out_twice_however_many_ask_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = [port for ports in pool.map(lambda _: free_ports(4), range(32)) for port in ports]
    assert len(set(found)) == 128


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is held")
def test_a_port_that_is_held_is_for_its_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(ports._Candidates):
        """Those of another process, which never gave out this port."""

        def __iter__(self) -> Iterator[int]:
            yield port

    with held_ports(1) as (port,):
        for _ in range(2):  # a server that is started again, too
            with listen(LOOPBACK, port):
                socket.create_connection((LOOPBACK, port)).close()
        monkeypatch.setattr(ports, "_CANDIDATES", Same())
        with pytest.raises(CommandError, match="free ports are needed"):
            free_ports(1)


def test_ports_are_none_an_outgoing_connection_could_take() -> None:
    assert max(free_ports(16)) < outgoing_ports_begin()


def test_a_port_taken_by_others_is_passed_over() -> None:
    """They are offered in turn, so the next one is known."""
    (before,) = free_ports(1)
    with socket.socket() as listener:
        # Whoever holds it, we or somebody else.
        with contextlib.suppress(OSError):
            listener.bind((LOOPBACK, before + 1))
        assert free_ports(1) != [before + 1]


def test_without_room_below_them_the_lowest_thousand_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some systems give outgoing connections everything from 1024 on."""
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_OUTGOING", tmp_path / "range")
    assert outgoing_ports_begin() == 1024
    assert set(ports._Candidates()) == set(range(10_000, 11_000))
    monkeypatch.setattr(ports, "_OUTGOING", tmp_path / "missing")
    assert outgoing_ports_begin() == 32_768


def test_that_there_are_not_so_many_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(ports._Candidates):
        def __iter__(self) -> Iterator[int]:
            yield from itertools.islice(super().__iter__(), 2)

    monkeypatch.setattr(ports, "_CANDIDATES", Two())
    with pytest.raises(CommandError, match="3 free ports are needed, only"):
        free_ports(3)


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CommandError, match=f"--port: port {port} cannot be used.*choose"):
            require_free(port, setting="--port")


def _without_loopback(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where there is no network at all."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--net", sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def _can_unshare() -> bool:
    return bool(shutil.which("unshare")) and _without_loopback("pass").returncode == 0


@pytest.mark.skipif(not _can_unshare(), reason="needs namespaces of one's own")
def test_a_machine_that_does_not_reach_itself_starts_nothing(tmp_path: Path) -> None:
    started = _without_loopback(
        "from nitro.local.system import LocalSystem\n"
        f"with LocalSystem({str(tmp_path / 'runs')!r}): pass"
    )
    assert "does not reach itself at 127.0.0.1" in started.stderr
    assert "ip link set lo up" in started.stderr
    assert not (tmp_path / "runs").exists()
