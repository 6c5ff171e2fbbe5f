"""The process: ports, readiness, signals, refusals that name the setting."""

import json
import signal
import socket
import subprocess
import sys

import pytest
from botocore.exceptions import ConnectionClosedError

from services.emulator.app import main
from tests.services.emulator.conftest import (
    PATIENCE_S,
    ROOT,
    StartEmulator,
    alive,
    call,
    emulator_environment,
    pid_of,
    wait_until,
)


def run(**settings: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "services.emulator.app"],
        env=emulator_environment(**settings),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        front = run(port=port)
        behind = run(mode="external", runtime_port=port)
    assert (front.returncode, behind.returncode) == (2, 2)
    assert front.stderr.startswith(f"NITRO_EMULATOR_PORT: cannot listen on 127.0.0.1 port {port}")
    assert behind.stderr.startswith("NITRO_EMULATOR_RUNTIME_PORT: cannot listen")
    assert "Traceback" not in run(host="no such host").stderr
    assert "Traceback" not in front.stderr + behind.stderr


_WITHOUT_A_SUPERVISOR = """
import sys
from services.emulator.app import main
from services.emulator.environments.processes import ProcessEnvironments

async def broken(*_):
    raise RuntimeError("the supervisor is gone")

ProcessEnvironments._live = broken
sys.exit(main())
"""


def test_it_ends_with_the_reason_when_nobody_starts_environments_any_more() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_A_SUPERVISOR],
        env=emulator_environment(eager=True),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "RuntimeError: the supervisor is gone"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"port": "many"}, "NITRO_EMULATOR_PORT: "),
        ({"processes": 0}, "NITRO_EMULATOR_PROCESSES: "),
        ({"handler": "nodots"}, "NITRO_EMULATOR_HANDLER: "),
        ({"faults": {"crash_rate": 1.5}}, "NITRO_EMULATOR_FAULTS__CRASH_RATE: "),
        ({"variables": {"AWS_REGION": "s3cr3t"}}, "NITRO_EMULATOR_VARIABLES: "),
        ({"variables": {"A=B": "s3cr3t"}}, "NITRO_EMULATOR_VARIABLES: "),
        ({"variables": {"A": "s3cr3t\0"}}, "NITRO_EMULATOR_VARIABLES: "),
        ({"variables": "{not json s3cr3t"}, "variables"),
        ({"task_root": "/no/such/folder"}, "NITRO_EMULATOR_TASK_ROOT: "),
        ({"ports_file": "/no/such/folder/ports"}, "NITRO_EMULATOR_PORTS_FILE: "),
        ({"log_folder": "/dev/null/logs"}, "NITRO_EMULATOR_LOG_FOLDER: "),
    ],
)
def test_settings_that_cannot_work_are_named(
    settings: dict[str, object],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in emulator_environment(**settings).items():
        monkeypatch.setenv(name, value)
    assert main() == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert "s3cr3t" not in complaint


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(start_emulator: StartEmulator, number: signal.Signals) -> None:
    emulator = start_emulator(processes=2)
    environment = pid_of(emulator)
    busy = call(emulator, {"do": "sleep", "seconds": 600}, in_flight=1)
    wait_until(lambda: emulator.stats()["environments"]["busy"] >= 1, what="it to run")
    emulator.process.send_signal(number)
    assert emulator.process.wait(PATIENCE_S) == 0
    assert not alive(environment)
    # No answer: one would say that the function failed, and nobody knows how far it came.
    with pytest.raises(ConnectionClosedError):
        busy.result()
    assert "Traceback" not in emulator.log()


def test_environments_do_not_outlive_a_killed_emulator(start_emulator: StartEmulator) -> None:
    emulator = start_emulator()
    environment = pid_of(emulator)
    emulator.process.kill()
    wait_until(lambda: not alive(environment), what="the environment to give up")


def test_health_and_readiness(start_emulator: StartEmulator) -> None:
    emulator = start_emulator(eager=True, processes=2)
    assert emulator.request("GET", "/healthz")[0] == 200
    wait_until(emulator.ready, what="readiness")
    assert emulator.stats()["environments"] == {"starting": 0, "idle": 2, "busy": 0}
    lazy = start_emulator(processes=2)
    assert lazy.ready()
    assert lazy.stats()["environments"] == {"starting": 0, "idle": 0, "busy": 0}


def test_not_ready_while_an_environment_cannot_start(start_emulator: StartEmulator) -> None:
    emulator = start_emulator(eager=True, variables={"PROBE_FAILS_AT_IMPORT": "1"})
    wait_until(lambda: b"told to fail" in emulator.request("GET", "/readyz")[2], what="the reason")
    status, _, body = emulator.request("GET", "/readyz")
    assert status == 503
    assert json.loads(body)["missing"].startswith("0 of 1 environments")


def test_idle_connections_stay_open(start_emulator: StartEmulator) -> None:
    """A pooled connection must be good for the next round, however long the learner takes."""
    emulator = start_emulator()
    emulator.client().get_account_settings()
    headers = emulator.request("GET", "/healthz")[1]
    assert "connection" not in headers
