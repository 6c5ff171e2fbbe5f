import socket

import pytest

from nitro.errors import CommandError
from nitro.ports import LOOPBACK, free_ports, require_free


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        require_free(port, setting="--port")


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CommandError, match=f"--port: port {port} cannot be used.*choose"):
            require_free(port, setting="--port")
