import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from nitro.errors import CommandError
from nitro.ports import LOOPBACK, free_ports, outgoing_ports_begin, require_free


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        require_free(port, setting="--port")


def test_no_port_is_given_out_twice_however_many_ask_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = [port for ports in pool.map(lambda _: free_ports(4), range(32)) for port in ports]
    assert len(set(found)) == 128


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


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CommandError, match=f"--port: port {port} cannot be used.*choose"):
            require_free(port, setting="--port")
