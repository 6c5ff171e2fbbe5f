"""An AWS account on this machine: moto for ECS and DynamoDB, our emulator for Lambda."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.account import Account, FakeTime

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def lambda_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Lambda emulator: provisioned concurrency is what moto does not know."""
    ports_file = tmp_path_factory.mktemp("emulator") / "ports.json"
    emulator = _start_emulator(ports_file)
    try:
        yield f"http://127.0.0.1:{_read_ports(emulator, ports_file)['port']}"
    finally:
        emulator.terminate()
        emulator.wait(_PATIENCE_S)


@pytest.fixture
def account(aws: str, lambda_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account with the table, the alias and a learner's service that is off."""
    del aws  # it points the SDK at moto; Lambda alone is elsewhere
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", lambda_url)
    made = Account(lambda_url=lambda_url)
    made.create()
    yield made
    made.remove()


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


def _start_emulator(ports_file: Path) -> subprocess.Popen[bytes]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("NITRO_", "AWS_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "services.emulator.app"],
        cwd=ROOT,
        env={
            **inherited,
            "NITRO_EMULATOR_PORT": "0",
            "NITRO_EMULATOR_AUTH": "disabled",  # moto and it are called with the same credentials
            "NITRO_EMULATOR_PORTS_FILE": str(ports_file),
            "NITRO_EMULATOR_ALIASES": json.dumps(["live"]),
            "NITRO_EMULATOR_PROCESSES": "1",
            "NITRO_EMULATOR_TASK_ROOT": str(ROOT),
            "NITRO_EMULATOR_VARIABLES": json.dumps({"NITRO_CACHE_URL": "redis://127.0.0.1:9/0"}),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _read_ports(process: subprocess.Popen[bytes], path: Path) -> dict[str, int]:
    give_up_at = time.monotonic() + _PATIENCE_S
    pause = threading.Event()
    while not path.exists():
        assert process.poll() is None, "the emulator ended"
        assert time.monotonic() < give_up_at, "the emulator did not start"
        pause.wait(0.02)
    ports: dict[str, int] = json.loads(path.read_text())
    return ports
