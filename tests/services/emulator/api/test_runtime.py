"""The Runtime API in mode `external`: as raw HTTP, and with an awslambdaric that comes to it."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.services.emulator.conftest import (
    HERE,
    PATIENCE_S,
    Invoked,
    RunningEmulator,
    StartEmulator,
    wait_until,
)

RUNTIME = "/2018-06-01/runtime"


@pytest.fixture(scope="module")
def shared_external(start_module_emulator: StartEmulator) -> RunningEmulator:
    return start_module_emulator(mode="external", timeout_s=30)


@pytest.fixture
def external(shared_external: RunningEmulator) -> RunningEmulator:
    """An emulator to which nobody is connected."""
    wait_until(lambda: not shared_external.ready(), what="earlier connections to go")
    return shared_external


@contextlib.contextmanager
def connected(emulator: RunningEmulator) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", emulator.runtime_port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        yield connection


def poll(connection: http.client.HTTPConnection) -> tuple[dict[str, str], bytes]:
    connection.request("GET", f"{RUNTIME}/invocation/next")
    answer = connection.getresponse()
    assert answer.status == 200
    return {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def post(connection: http.client.HTTPConnection, path: str, body: bytes, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", RUNTIME + path, body=body, headers=named)
    answer = connection.getresponse()
    answer.read()
    return answer.status


@contextlib.contextmanager
def invoking(emulator: RunningEmulator, event: object) -> Iterator[list[Invoked]]:
    """Invoke in the background; the answer is in the list once the block is left."""
    answers: list[Invoked] = []
    thread = threading.Thread(target=lambda: answers.append(emulator.invoke(event)))
    thread.start()
    yield answers
    thread.join()


def idle(emulator: RunningEmulator) -> int:
    count: int = emulator.stats()["environments"]["idle"]
    return count


def test_an_invocation_carries_every_header_the_client_needs(external: RunningEmulator) -> None:
    with invoking(external, {"x": 1}) as answers, connected(external) as environment:
        headers, body = poll(environment)
        assert json.loads(body) == {"x": 1}
        assert headers["lambda-runtime-invoked-function-arn"].endswith(":function:probe:live")
        assert abs(int(headers["lambda-runtime-deadline-ms"]) / 1000 - 30 - time.time()) < 30
        assert headers["lambda-runtime-trace-id"].startswith("Root=1-")
        assert headers["lambda-runtime-client-context"] == "null"
        assert headers["lambda-runtime-cognito-identity"] == "null"
        request_id = headers["lambda-runtime-aws-request-id"]
        assert post(environment, f"/invocation/{request_id}/response", b'"done"') == 202
        # Answered is answered: the second is refused.
        assert post(environment, f"/invocation/{request_id}/response", b'"again"') == 400
    assert answers[0].payload == "done"
    assert answers[0].request_id == request_id
    assert "REPORT" in answers[0].log


def test_an_error_passes_through(external: RunningEmulator) -> None:
    error = {"errorType": "Custom", "errorMessage": "said so"}
    with invoking(external, {}) as answers, connected(external) as environment:
        request_id = poll(environment)[0]["lambda-runtime-aws-request-id"]
        body = json.dumps(error).encode()
        assert post(environment, f"/invocation/{request_id}/error", body) == 202
    assert answers[0].function_error == "Unhandled"
    assert answers[0].payload == error


def test_a_poller_that_leaves_takes_no_event_with_it(external: RunningEmulator) -> None:
    with connected(external) as leaver, connected(external) as stayer:
        leaver.request("GET", f"{RUNTIME}/invocation/next")
        wait_until(lambda: idle(external) == 1, what="first poll")
        stayer.request("GET", f"{RUNTIME}/invocation/next")
        wait_until(lambda: idle(external) == 2, what="second poll")
        leaver.close()
        wait_until(lambda: idle(external) == 1, what="the leaver to be noticed")
        with invoking(external, {"x": 1}) as answers:
            answer = stayer.getresponse()
            assert json.loads(answer.read()) == {"x": 1}
            request_id = answer.headers["lambda-runtime-aws-request-id"]
            assert post(stayer, f"/invocation/{request_id}/response", b"2") == 202
    assert answers[0].payload == 2


def test_a_connection_lost_in_mid_invocation_is_an_exit_error(external: RunningEmulator) -> None:
    with invoking(external, {}) as answers, connected(external) as environment:
        poll(environment)
        environment.close()
    assert answers[0].function_error == "Unhandled"
    assert answers[0].payload["errorType"] == "Runtime.ExitError"


def test_a_late_response_is_refused(start_emulator: StartEmulator) -> None:
    external = start_emulator(mode="external", timeout_s=0.2)
    with connected(external) as environment:
        with invoking(external, {}) as answers:
            request_id = poll(environment)[0]["lambda-runtime-aws-request-id"]
        assert answers[0].payload["errorType"] == "Sandbox.Timedout"
    with connected(external) as environment:
        assert post(environment, f"/invocation/{request_id}/response", b"1") == 400


def test_an_init_error_answers_those_who_wait(external: RunningEmulator) -> None:
    error = {"errorType": "ValueError", "errorMessage": "cannot start"}
    with invoking(external, {}) as answers, connected(external) as environment:
        wait_until(lambda: external.stats()["queued"] == 1, what="the invocation")
        body = json.dumps(error).encode()
        header = {"Lambda_Runtime_Function_Error_Type": "ValueError"}
        assert post(environment, "/init/error", body, **header) == 202
    assert answers[0].payload == error
    status, _, body = external.request("GET", "/readyz")
    assert status == 503
    assert b"cannot start" in body


def test_an_environment_runs_one_invocation_at_a_time(external: RunningEmulator) -> None:
    with invoking(external, {}), connected(external) as environment:
        request_id = poll(environment)[0]["lambda-runtime-aws-request-id"]
        environment.request("GET", f"{RUNTIME}/invocation/next")
        answer = environment.getresponse()
        assert (answer.status, b"InvalidStateTransition" in answer.read()) == (403, True)
        assert post(environment, f"/invocation/{request_id}/response", b"1") == 202


def test_an_awslambdaric_that_comes_by_itself(external: RunningEmulator) -> None:
    api = {"AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{external.runtime_port}"}
    with subprocess.Popen(
        [sys.executable, "-m", "awslambdaric", "probe_handler.handler"],
        env={**os.environ, **api},
        cwd=HERE,
        stderr=subprocess.DEVNULL,
    ) as container:
        try:
            described = [external.invoke({"do": "describe"}).payload for _ in range(3)]
            assert [answer["served"] for answer in described] == [1, 2, 3]
            assert {answer["pid"] for answer in described} == {container.pid}
            assert external.ready()
            assert external.invoke({"do": "raise"}).function_error == "Unhandled"
            wait_until(lambda: idle(external) == 1, what="the next poll")
            lost = external.invoke({"do": "exit", "code": 5})
            assert lost.payload["errorType"] == "Runtime.ExitError"
            assert container.wait(PATIENCE_S) == 5
        finally:
            container.kill()
    wait_until(lambda: not external.ready(), what="the loss to be noticed")


def test_a_timed_out_environment_restarts_itself(start_emulator: StartEmulator) -> None:
    """Its late answer is refused, on which AWS's client exits: a container's restart follows."""
    external = start_emulator(mode="external", timeout_s=0.2)
    api = {"AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{external.runtime_port}"}
    with subprocess.Popen(
        [sys.executable, "-m", "awslambdaric", "probe_handler.handler"],
        env={**os.environ, **api},
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as container:
        try:
            late = external.invoke({"do": "sleep", "seconds": 0.5})
            assert late.payload["errorType"] == "Sandbox.Timedout"
            assert container.wait(PATIENCE_S) == 1
        finally:
            container.kill()
