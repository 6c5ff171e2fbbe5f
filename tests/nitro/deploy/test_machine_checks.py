"""Verdicts about a machine, by what it has."""

import socket

import pytest

from nitro.deploy.findings import Verdict
from nitro.deploy.machine_checks import check_cores, check_memory, check_port, check_python

GIB = 2**30


@pytest.mark.parametrize(
    ("version", "verdict"), [((3, 10, 9), "wrong"), ((3, 11, 0), "ok"), ((4, 0, 0), "ok")]
)
def test_python(version: tuple[int, int, int], verdict: Verdict) -> None:
    assert check_python(version).verdict == verdict


@pytest.mark.parametrize(
    ("free", "verdict"),
    [(GIB - 1, "wrong"), (GIB, "warning"), (2 * GIB, "ok"), (None, "warning")],
)
def test_memory(free: int | None, verdict: Verdict) -> None:
    assert check_memory(free).verdict == verdict


@pytest.mark.parametrize(("cores", "verdict"), [(1, "warning"), (2, "ok")])
def test_cores(cores: int, verdict: Verdict) -> None:
    assert check_cores(cores).verdict == verdict


def test_a_port_in_use_is_a_warning_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = check_port(taken.getsockname()[1])
    assert (found.verdict, "--port" in found.advice) == ("warning", True)
