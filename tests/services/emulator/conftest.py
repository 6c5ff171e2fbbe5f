"""A real emulator in a process of its own, seen through real boto3 and plain HTTP."""

import base64
import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TOKEN = "a-token-of-the-emulator"
PATIENCE_S = 60.0
"""Upper bound of every wait; far above what any needs, so that a slow machine fails nothing."""


def wait_until(condition: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S} s in vain: {what}")
        time.sleep(0.01)


@dataclass
class Invoked:
    """One answer of the Invoke API."""

    status: int
    payload: Any
    function_error: str | None
    version: str | None
    log: str
    request_id: str


@dataclass
class RunningEmulator:
    """A started emulator and ways to talk to it."""

    process: subprocess.Popen[bytes]
    port: int
    runtime_port: int
    log_path: Path
    _clients: dict[str, "LambdaClient"] = field(default_factory=dict)
    """By access key id."""

    def client(self, *, access_key_id: str = TOKEN) -> "LambdaClient":
        if access_key_id not in self._clients:
            config = Config(
                retries={"total_max_attempts": 1}, read_timeout=PATIENCE_S, max_pool_connections=64
            )
            self._clients[access_key_id] = boto3.client(
                "lambda",
                endpoint_url=f"http://127.0.0.1:{self.port}",
                region_name="us-east-1",
                aws_access_key_id=access_key_id,
                aws_secret_access_key="unused",
                config=config,
            )
        return self._clients[access_key_id]

    def invoke(self, event: object, *, name: str = "probe:live", **options: Any) -> Invoked:
        answer = self.client().invoke(
            FunctionName=name, Payload=json.dumps(event).encode(), LogType="Tail", **options
        )
        with contextlib.closing(answer["Payload"]) as body:
            raw = body.read()
        return Invoked(
            status=answer["StatusCode"],
            payload=json.loads(raw) if raw else None,
            function_error=answer.get("FunctionError"),
            version=answer.get("ExecutedVersion"),
            log=base64.b64decode(answer.get("LogResult", "")).decode(),
            request_id=answer["ResponseMetadata"]["RequestId"],
        )

    def request(
        self, method: str, path: str, *, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            named = {"Authorization": f"Bearer {TOKEN}"}
            named |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=named)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.request("GET", "/emulator/stats")[2])
        return stats

    def put_faults(self, **faults: float) -> None:
        status, _, body = self.request("PUT", "/emulator/faults", body=json.dumps(faults).encode())
        assert status == 200, body

    def ready(self) -> bool:
        return self.request("GET", "/readyz")[0] == 200

    def log(self) -> str:
        return self.log_path.read_text()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_S)


class Caller(threading.Thread):
    """One synchronous invocation in the background."""

    def __init__(self, emulator: RunningEmulator, event: dict[str, object]) -> None:
        super().__init__()
        self._emulator, self._event = emulator, event
        self._answer: Future[Invoked] = Future()

    def run(self) -> None:
        try:
            self._answer.set_result(self._emulator.invoke(self._event))
        except BotoCoreError as error:
            self._answer.set_exception(error)

    def result(self) -> Invoked:
        self.join()
        return self._answer.result()


def call(emulator: RunningEmulator, event: dict[str, object], *, in_flight: int) -> Caller:
    """Start an invocation and return once the emulator has it."""
    caller = Caller(emulator, event)
    caller.start()
    wait_until(lambda: emulator.stats()["in_flight"] == in_flight, what=f"{in_flight} in flight")
    return caller


def alive(pid: int) -> bool:
    """Say whether a process runs; one that ended but was not collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def pid_of(emulator: RunningEmulator) -> int:
    pid: int = emulator.invoke({"do": "describe"}).payload["pid"]
    return pid


StartEmulator = Callable[..., RunningEmulator]


def emulator_environment(**settings: object) -> dict[str, str]:
    """Environment of an emulator: settings by field name, values as JSON unless strings."""
    given: dict[str, object] = {
        "port": 0,
        "token": TOKEN,
        "function_name": "probe",
        "handler": "probe_handler.handler",
        "task_root": str(HERE),
        "processes": 1,
        **settings,
    }
    variables = {
        f"NITRO_EMULATOR_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
        if value is not None
    }
    kept = {name: value for name, value in os.environ.items() if "EMULATOR" not in name}
    return {**kept, **variables}


def start(folder: Path, **settings: object) -> RunningEmulator:
    folder.mkdir(parents=True, exist_ok=True)
    ports_file, log_path = folder / "ports.json", folder / "emulator.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "services.emulator.app"],
            env=emulator_environment(ports_file=str(ports_file), **settings),
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: ports_file.exists() or process.poll() is not None, what="emulator's ports"
        )
        assert process.poll() is None, log_path.read_text()
    except AssertionError:
        process.kill()
        process.wait()
        raise
    ports = json.loads(ports_file.read_text())
    return RunningEmulator(process, ports["port"], ports["runtime_port"], log_path)


@pytest.fixture(scope="module")
def start_module_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartEmulator]:
    """Like `start_emulator`, for emulators the tests of one file share."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("module")

        def start_one(**settings: object) -> RunningEmulator:
            running = start(folder, **settings)
            stack.callback(running.close)
            return running

        yield start_one


@pytest.fixture
def start_emulator(tmp_path: Path) -> Iterator[StartEmulator]:
    """Start emulators of a test's own; all of them end with the test, cleanly."""
    started: list[RunningEmulator] = []

    def start_one(**settings: object) -> RunningEmulator:
        started.append(start(tmp_path / f"emulator-{len(started)}", **settings))
        return started[-1]

    yield start_one
    for emulator in started:
        emulator.process.terminate()
    for emulator in started:
        emulator.close()


@pytest.fixture(scope="session")
def shared_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    running = start(
        tmp_path_factory.mktemp("shared"),
        processes=2,
        eager=True,
        variables={"PROBE_COLOUR": "blue", "OMP_NUM_THREADS": "1"},
    )
    wait_until(running.ready, what="shared emulator's environments")
    yield running
    running.close()
    assert running.process.returncode == 0
    assert "Traceback" not in "\n".join(
        line for line in running.log().splitlines() if "environments.output" not in line
    )


@pytest.fixture
def emulator(shared_emulator: RunningEmulator) -> Iterator[RunningEmulator]:
    """The session's emulator, two environments, no faults before or after."""
    yield shared_emulator
    shared_emulator.put_faults()
