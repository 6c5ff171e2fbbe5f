"""The images' health check, against a real server."""

import socket
import subprocess
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nitro.local.ports import free_ports
from tests.services.scaler.lambda_endpoint import serve

_SCRIPT = Path(__file__).parents[2] / "containers" / "alive.sh"


def _alive(port: int) -> bool:
    command = [str(_SCRIPT), str(port)]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


@pytest.mark.parametrize("status", [200, 503])
def test_what_the_service_says_is_what_counts(status: int) -> None:
    def answer(request: Request) -> Response:
        del request
        return Response(status_code=status)

    with serve(Starlette(routes=[Route("/healthz", answer)])) as url:
        assert _alive(int(url.rpartition(":")[2])) == (status == 200)


def test_a_service_that_does_not_listen_or_answer_is_not_alive() -> None:
    assert not _alive(free_ports(1)[0])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not _alive(silent.getsockname()[1])
