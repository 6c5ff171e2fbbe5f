"""The Invoke API through unmodified boto3, with unmodified awslambdaric behind it."""

import json
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.services.emulator.conftest import TOKEN, RunningEmulator, StartEmulator, wait_until

ARN = "arn:aws:lambda:us-east-1:123456789012:function:probe"
INVOKE = "/2015-03-31/functions/probe/invocations"


@pytest.mark.parametrize(
    ("name", "options", "version", "arn"),
    [
        ("probe", {}, "$LATEST", ARN),
        ("probe", {"Qualifier": "live"}, "1", f"{ARN}:live"),
        ("probe:live", {}, "1", f"{ARN}:live"),
        ("probe:1", {}, "1", f"{ARN}:1"),
        ("probe:$LATEST", {}, "$LATEST", f"{ARN}:$LATEST"),
        (ARN, {}, "$LATEST", ARN),
        (f"{ARN}:live", {"Qualifier": "live"}, "1", f"{ARN}:live"),
    ],
)
def test_every_way_to_name_the_function_reaches_it(
    emulator: RunningEmulator, name: str, options: dict[str, Any], version: str, arn: str
) -> None:
    invoked = emulator.invoke({"do": "describe"}, name=name, **options)
    assert (invoked.status, invoked.version, invoked.function_error) == (200, version, None)
    assert invoked.payload["arn"] == arn
    assert invoked.payload["request_id"] == invoked.request_id


@pytest.mark.parametrize(
    "name",
    [
        "other",
        "probe:stale",
        ARN.replace("123456789012", "999999999999"),
        ARN.replace("us-east-1", "eu-west-1"),
    ],
)
def test_anything_not_configured_is_not_found(emulator: RunningEmulator, name: str) -> None:
    with pytest.raises(emulator.client().exceptions.ResourceNotFoundException, match="configured"):
        emulator.invoke({}, name=name)


def test_a_name_ends_where_it_ends(emulator: RunningEmulator) -> None:
    path = "/2015-03-31/functions/probe%0A/invocations"
    status, headers, _ = emulator.request("POST", path, body=b"{}")
    assert (status, headers["x-amzn-errortype"]) == (400, "InvalidParameterValueException")


def test_two_qualifiers_that_differ_are_refused(emulator: RunningEmulator) -> None:
    with pytest.raises(emulator.client().exceptions.InvalidParameterValueException):
        emulator.invoke({}, name="probe:live", Qualifier="1")


def test_an_environment_sees_lambdas_variables_and_the_configured_ones(
    emulator: RunningEmulator,
) -> None:
    described = emulator.invoke({"do": "describe"}).payload
    environment = described["environment"]
    expected = {
        "AWS_LAMBDA_FUNCTION_NAME": "probe",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
        "AWS_REGION": "us-east-1",
        "_HANDLER": "probe_handler.handler",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PROBE_COLOUR": "blue",
    }
    assert expected.items() <= environment.items()
    assert not [name for name in environment if name.startswith("NITRO_")]
    assert 0 < described["remaining_ms"] <= 60_000
    assert described["memory_mb"] == "1024"


def test_an_environment_takes_the_kernels_of_its_surroundings_and_one_thread(
    start_emulator: StartEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "AVX512F"}
    for name, value in {**kernels, "OPENBLAS_NUM_THREADS": "7"}.items():
        monkeypatch.setenv(name, value)
    environment = start_emulator().invoke({"do": "describe"}).payload["environment"]
    assert {**kernels, "OPENBLAS_NUM_THREADS": "1"}.items() <= environment.items()


def test_an_environment_gets_its_users_variables_where_that_is_said_but_no_secrets(
    start_emulator: StartEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {
        "SIM_TOKEN": "secret",
        "SIM_SERVER": "http://me:pw@sim",
        "NITRO_OF_ANOTHER": "x",
        "AWS_OF_ANOTHER": "work",
        "VECLIB_NUM_THREADS": "8",
    }
    for name, value in {"SIM_MODE": "hard", **others}.items():
        monkeypatch.setenv(name, value)
    environment = start_emulator(inherit="user").invoke({"do": "describe"}).payload["environment"]
    assert environment["SIM_MODE"] == "hard"
    assert others.keys() & environment.keys() == set()
    assert "SIM_MODE" not in start_emulator().invoke({"do": "describe"}).payload["environment"]


def test_no_payload_is_an_empty_event(emulator: RunningEmulator) -> None:
    answer = emulator.client().invoke(FunctionName="probe")
    assert json.loads(answer["Payload"].read()) == {}
    assert "LogResult" not in answer


@pytest.mark.parametrize("kind", ["DryRun", "Event", "Whenever"])
def test_a_kind_of_invocation_that_nothing_here_uses_is_refused(
    emulator: RunningEmulator, kind: str
) -> None:
    with pytest.raises(emulator.client().exceptions.InvalidParameterValueException, match=kind):
        emulator.invoke({}, InvocationType=kind)


def test_log_tail_has_output_and_report(emulator: RunningEmulator) -> None:
    invoked = emulator.invoke({"print": "here I am"})
    start, *output, end, report = invoked.log.strip("\n").split("\n")
    assert start == f"START RequestId: {invoked.request_id} Version: 1"
    assert output == ["here I am", "to stderr"]
    assert end == f"END RequestId: {invoked.request_id}"
    assert re.fullmatch(
        rf"REPORT RequestId: {invoked.request_id}\tDuration: \d+\.\d\d ms\t"
        r"Billed Duration: \d+ ms\tMemory Size: 1024 MB\tMax Memory Used: [1-9]\d* MB\t",
        report,
    )


def test_log_tail_is_the_last_4_kb_and_this_invocations_only(emulator: RunningEmulator) -> None:
    long = emulator.invoke({"print": "x" * 10_000}).log
    assert len(long) == 4096
    assert long.count("REPORT") == 1
    assert "START" not in long
    short = [emulator.invoke({}).log for _ in range(4)]
    assert not any("x" in log.split("\n")[1] for log in short)


def test_a_raising_handler_is_a_function_error_with_status_200(emulator: RunningEmulator) -> None:
    invoked = emulator.invoke({"do": "raise", "message": "no luck"})
    assert (invoked.status, invoked.function_error) == (200, "Unhandled")
    assert invoked.payload["errorType"] == "ValueError"
    assert invoked.payload["errorMessage"] == "no luck"
    assert "no luck" in invoked.log


def test_size_limits(emulator: RunningEmulator) -> None:
    client = emulator.client()
    limit = 6_291_456
    largest = b'"' + b"x" * (limit - 2) + b'"'
    echoed = client.invoke(FunctionName="probe", Payload=largest)["Payload"].read()
    assert echoed == largest
    with pytest.raises(client.exceptions.RequestTooLargeException, match=str(limit)):
        client.invoke(FunctionName="probe", Payload=largest + b" ")


def test_too_large_a_response_is_a_function_error(emulator: RunningEmulator) -> None:
    invoked = emulator.invoke({"do": "big", "size": 6_291_556})
    assert invoked.function_error == "Unhandled"
    assert invoked.payload["errorType"] == "Function.ResponseSizeTooLarge"


@pytest.mark.parametrize(
    "payload", [b"{", b"{'a': 1}", b"\xff\xfe", b"NaN", b"[" * 100_000, b"nonsense"]
)
def test_what_is_not_json_is_refused(emulator: RunningEmulator, payload: bytes) -> None:
    client = emulator.client()
    with pytest.raises(client.exceptions.InvalidRequestContentException, match="json"):
        client.invoke(FunctionName="probe", Payload=payload)


def test_wrong_media_type_is_refused_with_a_typed_error(emulator: RunningEmulator) -> None:
    status, headers, body = emulator.request("POST", INVOKE, body=b"{}", Content_Type="text/html")
    assert status == 415
    assert headers["x-amzn-errortype"] == "UnsupportedMediaTypeException"
    assert headers["x-amzn-requestid"]
    error = json.loads(body)
    assert error["Type"] == "User"
    assert "text/html" in error["message"]


def test_a_call_that_is_not_emulated_says_so(emulator: RunningEmulator) -> None:
    with pytest.raises(ClientError, match="not emulated"):
        emulator.client().list_functions()


def test_a_client_that_leaves_does_not_cancel_its_invocation(
    emulator: RunningEmulator, tmp_path: Path
) -> None:
    before = emulator.stats()
    started, release = tmp_path / "started", tmp_path / "release"
    event = json.dumps({"touch": str(started), "await_file": str(release)}).encode()
    head = (
        f"POST {INVOKE} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(event)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", emulator.port)) as leaver:
        leaver.sendall(head + event)
        wait_until(started.exists, what="invocation to start")
    release.touch()
    wait_until(
        lambda: emulator.stats()["succeeded"] == before["succeeded"] + 1, what="it to succeed"
    )
    assert emulator.stats()["environments_lost"] == before["environments_lost"]


def test_two_environments_run_at_once(emulator: RunningEmulator, tmp_path: Path) -> None:
    # Each waits for the other's mark, so they can only succeed side by side.
    marks = [str(tmp_path / "a"), str(tmp_path / "b")]
    answers: list[Any] = []

    def invoke(mine: str, other: str) -> None:
        answers.append(emulator.invoke({"touch": mine, "await_file": other, "do": "describe"}))

    threads = [
        threading.Thread(target=invoke, args=pair) for pair in (marks, list(reversed(marks)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.payload["pid"] for answer in answers}) == 2


def test_account_and_function_settings(emulator: RunningEmulator) -> None:
    client = emulator.client()
    assert client.get_account_settings()["AccountLimit"]["ConcurrentExecutions"] == 1000
    configuration = client.get_function_configuration(FunctionName="probe", Qualifier="live")
    assert configuration["MemorySize"] == 1024
    assert configuration["Timeout"] == 60
    assert configuration["State"] == "Active"
    assert configuration["FunctionArn"] == f"{ARN}:live"
    function = client.get_function(FunctionName="probe")
    assert function["Configuration"]["Version"] == "$LATEST"


def test_environments_are_sessions_of_their_own(emulator: RunningEmulator) -> None:
    pid = emulator.invoke({"do": "describe"}).payload["pid"]
    assert os.getpgid(pid) == pid
