"""A local system for programs in the frameworks' own interpreters, and what runs them."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.frameworks.cells import interpreter
from experiments.frameworks.telling import Framework
from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.jobs import StopReason
from tests.e2e.runs import wait_finished, wait_until
from tests.faults.rig import Rig

ROOT = Path(__file__).resolve().parents[3]
_LEASES = {"scaler": {"NITRO_LEASE_TTL_S": "20", "NITRO_HEARTBEAT_EVERY_S": "1"}}
"""A client may be busy for some seconds, and a lost one is not waited for long."""
_PATIENCE_S = 900.0

Start = Callable[[Framework, str], subprocess.Popen[str]]


@pytest.fixture(scope="package")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Cache, scaler and actors; whoever learns comes from outside."""
    folder = tmp_path_factory.mktemp("integrations") / "runs"
    with (
        LocalSystem(folder, learners=0, environment=_LEASES) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        yield Rig(system, client, folder)


@pytest.fixture(scope="module")
def start_once(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start programs that several tests look at the end of."""
    with _starting(rig, tmp_path_factory.mktemp("framework")) as run:
        yield run


@pytest.fixture
def start(rig: Rig, tmp_path: Path) -> Iterator[Start]:
    """Start programs of one test."""
    with _starting(rig, tmp_path) as run:
        yield run


@contextmanager
def _starting(rig: Rig, folder: Path) -> Iterator[Start]:
    """Start programs of the source tree in a framework's interpreter; kill them in the end."""
    running: list[subprocess.Popen[str]] = []

    def run(framework: Framework, program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(interpreter(framework)), "-W", "ignore", str(ROOT / program)],
            cwd=folder,
            env={
                **os.environ,
                "NITRO_API_URL": rig.system.api_url,
                "NITRO_TOKEN": rig.system.token,
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> list[str]:
    """Return what a program printed, once it has ended well."""
    out, err = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, f"{out[-2000:]}\n{err[-4000:]}"
    return out.splitlines()


def job_under_way(rig: Rig, known: set[str]) -> str:
    """Wait until a program that was just started has a job with some rounds; return its id."""
    pause = threading.Event()
    new: list[str] = []
    give_up_at = time.monotonic() + _PATIENCE_S
    while not new:
        assert time.monotonic() < give_up_at, "no job was opened"
        new = [job.job_id for job in rig.client.every_job() if job.job_id not in known]
        pause.wait(0.1)
    wait_until(rig.client, new[0], lambda job: job.progress.rounds >= 2, rig.system)
    return new[0]


def wait_until_lost(rig: Rig, job_id: str) -> StopReason | None:
    """Wait for the end of a job whose program is gone; return why it ended."""
    return wait_finished(rig.client, job_id).stop_reason
