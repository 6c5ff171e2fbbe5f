"""Environments the emulator starts: how they die, and what callers and successors see of it."""

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.environment import Environment, State
from services.emulator.environments.processes import ProcessEnvironments, backoff_s
from services.emulator.faults import Faults, FaultSettings
from services.emulator.invocation import Invocation
from services.emulator.settings import Settings
from tests.services.emulator.conftest import (
    RunningEmulator,
    StartEmulator,
    alive,
    pid_of,
    wait_until,
)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"do": "exit", "code": 3}, "Runtime exited with error: exit status 3"),
        ({"do": "exit", "code": 0}, "Runtime exited without providing a reason"),
        ({"do": "segfault"}, "Runtime exited with error: signal: segmentation fault"),
    ],
)
def test_a_dying_environment_is_an_exit_error_and_is_replaced(
    emulator: RunningEmulator, event: dict[str, object], reason: str
) -> None:
    invoked = emulator.invoke({**event, "print": "last words"})
    assert (invoked.status, invoked.function_error) == (200, "Unhandled")
    assert invoked.payload == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {invoked.request_id} Error: {reason}",
    }
    assert "last words\n" in invoked.log
    assert "Status: error" in invoked.log
    assert emulator.invoke({"still": "there"}).payload == {"still": "there"}


def test_what_an_environment_declines_goes_to_another_and_nobody_hears_of_it(
    start_emulator: StartEmulator, tmp_path: Path
) -> None:
    emulator = start_emulator()
    first = pid_of(emulator)
    invoked = emulator.invoke({"do": "decline_once", "mark": str(tmp_path / "mark")})
    assert (invoked.status, invoked.function_error) == (200, None)
    assert invoked.payload["pid"] != first
    stats = emulator.stats()
    assert (stats["invoked"], stats["environments_lost"], stats["function_errors"]) == (2, 0, 0)


def test_a_time_out_kills_the_environment_and_a_fresh_one_follows(
    start_emulator: StartEmulator, tmp_path: Path
) -> None:
    emulator = start_emulator(timeout_s=2.5)
    first = pid_of(emulator)
    mark = tmp_path / "mark"
    invoked = emulator.invoke({"touch": str(mark), "await_file": str(tmp_path / "never")})
    assert (invoked.status, invoked.function_error) == (200, "Unhandled")
    assert invoked.payload["errorType"] == "Sandbox.Timedout"
    message = f"RequestId: {invoked.request_id} Error: Task timed out after 2.50 seconds"
    assert invoked.payload["errorMessage"] == message
    assert "Task timed out after 2.50 seconds" in invoked.log
    described = emulator.invoke({"do": "describe"}).payload
    assert described["served"] == 1  # globals are gone
    assert described["pid"] != first
    assert not alive(first)
    assert emulator.stats()["timeouts"] == 1


def test_a_handler_that_never_stops_writing_is_timed_out_and_holds_up_nobody(
    start_emulator: StartEmulator, tmp_path: Path
) -> None:
    emulator = start_emulator(timeout_s=2.5, log_folder=str(tmp_path / "logs"))
    invoked = emulator.invoke({"do": "chatter"})
    assert invoked.payload["errorType"] == "Sandbox.Timedout"
    assert emulator.invoke({"still": "there"}).payload == {"still": "there"}


def test_what_a_handler_started_dies_with_its_environment(start_emulator: StartEmulator) -> None:
    emulator = start_emulator()
    child = emulator.invoke({"do": "child"}).payload
    assert alive(child)
    emulator.invoke({"do": "exit"})
    wait_until(lambda: not alive(child), what="child to be killed")


def test_an_environment_that_dies_idle_is_replaced(start_emulator: StartEmulator) -> None:
    emulator = start_emulator(eager=True)
    wait_until(emulator.ready, what="environment")
    first = pid_of(emulator)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "probe-0.1 ended" in emulator.log(), what="the end to be seen")
    assert pid_of(emulator) != first
    assert emulator.stats()["environments_lost"] == 0  # it took no invocation with it


def test_a_closed_connection_costs_the_environment_at_its_port_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        dispatcher = Dispatcher(
            Faults(FaultSettings()), concurrency_limit=9, timeout_s=9.0, memory_mb=128
        )
        settings = Settings(handler="probe_handler.handler", task_root=tmp_path, processes=2)
        environments = ProcessEnvironments(settings, dispatcher, ports=[1, 2])
        killed: list[str] = []
        polls: list[asyncio.Task[Invocation | None]] = []
        client = ("127.0.0.1", 50_000)  # peers of different ports may have the same one
        for slot in environments._slots:
            name = str(slot.port)
            slot.environment = Environment(name=name, kill=partial(killed.append, name))
            slot.environment.connection = client
            task = asyncio.create_task(dispatcher.next_invocation(slot.environment))
            await asyncio.sleep(0)  # it polls
            polls.append(task)
        environments.connection_lost(client, port=2)
        environments.connection_lost(("127.0.0.1", 50_001), port=1)
        assert killed == ["2"]
        assert [e.state for e in environments.all()] == [State.IDLE, State.LOST]
        assert await polls[1] is None
        polls[0].cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("eager", [False, True])
def test_a_handler_that_fails_at_import_is_a_function_error(
    start_emulator: StartEmulator, eager: bool
) -> None:
    emulator = start_emulator(variables={"PROBE_FAILS_AT_IMPORT": "1"}, eager=eager, processes=2)
    for _ in range(2):
        invoked = emulator.invoke({})
        assert (invoked.status, invoked.function_error) == (200, "Unhandled")
        assert invoked.payload["errorType"] == "ValueError"
        assert invoked.payload["errorMessage"] == "the probe was told to fail at import"
    assert "told to fail at import" in emulator.log()
    status, _, body = emulator.request("GET", "/readyz")
    assert (status == 503 and b"initialised" in body) if eager else status == 200


def test_a_failing_import_does_not_spin(start_emulator: StartEmulator) -> None:
    emulator = start_emulator(variables={"PROBE_FAILS_AT_IMPORT": "1"})
    emulator.invoke({})
    wait_until(
        lambda: emulator.stats()["environments"]["starting"] == 0, what="environment to be gone"
    )
    assert emulator.log().count("cannot be initialised") == 1  # nobody waits, nothing is started
    assert [backoff_s(failures) for failures in range(8)] == [
        *(0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
    ]
    assert backoff_s(10_000) == 5.0


@pytest.mark.parametrize("handler", ["no_such_module.handler", "probe_handler.no_such_function"])
def test_a_handler_that_is_not_there_is_named(start_emulator: StartEmulator, handler: str) -> None:
    payload = start_emulator(handler=handler).invoke({}).payload
    assert payload["errorType"] in {"Runtime.ImportModuleError", "Runtime.HandlerNotFound"}
    assert handler.rpartition(".")[0 if "module" in handler else 2] in payload["errorMessage"]


def test_exiting_and_hanging_at_import_are_function_errors(start_emulator: StartEmulator) -> None:
    exiting = start_emulator(variables={"PROBE_EXITS_AT_IMPORT": "7"}).invoke({}).payload
    assert exiting["errorType"] == "Runtime.ExitError"
    assert "exit status 7" in exiting["errorMessage"]
    hanging = start_emulator(variables={"PROBE_HANGS_AT_IMPORT": "1"}, init_timeout_s=0.3)
    assert hanging.invoke({}).payload["errorMessage"] == "Init timed out after 0.30 seconds"


def test_a_process_that_cannot_be_started_is_a_function_error(
    start_emulator: StartEmulator, tmp_path: Path
) -> None:
    folder = tmp_path / "soon gone"
    folder.mkdir()
    emulator = start_emulator(task_root=str(folder))
    folder.rmdir()
    assert "cannot start" in emulator.invoke({}).payload["errorMessage"]


def test_output_goes_to_the_log_or_to_a_file_per_environment(
    start_emulator: StartEmulator, tmp_path: Path
) -> None:
    logged = start_emulator()
    logged.invoke({"print": "no newline is lost"})
    wait_until(lambda: "probe-0.1: no newline is lost" in logged.log(), what="log line")
    filed = start_emulator(log_folder=str(tmp_path / "new" / "logs"))
    filed.invoke({"print": "into a file"})
    text = (tmp_path / "new" / "logs" / "environment-0.log").read_text()
    assert text == "into a file\nto stderr\n"
    assert "into a file" not in filed.log()


def test_an_environment_that_idles_too_long_is_let_go_of_unless_it_is_provisioned(
    start_emulator: StartEmulator,
) -> None:
    emulator = start_emulator(processes=2, idle_s=0.2, eager=True)
    wait_until(lambda: emulator.stats()["environments_let_go"] == 2, what="both let go of")
    wait_until(emulator.ready, what="ready, since it starts none for nobody")
    cold = emulator.invoke({"do": "describe"})
    assert "Init Duration" in cold.log
    assert cold.payload["environment"]["AWS_LAMBDA_INITIALIZATION_TYPE"] == "on-demand"

    alias = {"FunctionName": "probe", "Qualifier": "live"}
    emulator.client().put_provisioned_concurrency_config(**alias, ProvisionedConcurrentExecutions=2)
    wait_until(lambda: emulator.stats()["environments"]["idle"] == 2, what="both warm")
    let_go = emulator.stats()["environments_let_go"]
    time.sleep(0.6)  # three times as long as others may idle
    assert emulator.stats()["environments_let_go"] == let_go
    emulator.client().delete_provisioned_concurrency_config(**alias)
    wait_until(lambda: emulator.stats()["environments"]["idle"] == 0, what="both let go of")
