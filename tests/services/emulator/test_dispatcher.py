"""Concurrency: the queue, the limit, time-outs that count from the start."""

import asyncio
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.environment import Environment
from services.emulator.faults import Faults, FaultSettings
from services.emulator.invocation import Invocation
from tests.services.emulator.conftest import (
    Caller,
    StartEmulator,
    call,
    wait_until,
)


def test_above_the_limit_429_with_reason_and_retry_after(
    start_emulator: StartEmulator, tmp_path: Path
) -> None:
    emulator = start_emulator(concurrency_limit=2)
    release = tmp_path / "release"
    callers = [call(emulator, {"await_file": str(release)}, in_flight=n) for n in (1, 2)]
    with pytest.raises(emulator.client().exceptions.TooManyRequestsException) as caught:
        emulator.invoke({})
    response = caught.value.response
    assert response["Reason"] == "ConcurrentInvocationLimitExceeded"  # type: ignore[typeddict-item]
    assert response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 429
    release.touch()
    assert [caller.result().status for caller in callers] == [200, 200]
    assert emulator.stats()["throttled"] == 1


def test_an_invocation_whose_environment_goes_before_it_starts_is_the_next_ones() -> None:
    async def scenario() -> None:
        dispatcher = Dispatcher(
            Faults(FaultSettings()), concurrency_limit=9, timeout_s=9.0, memory_mb=128
        )
        first, second = (Environment(name=name, kill=lambda: None) for name in ("one", "two"))
        poll = asyncio.create_task(dispatcher.next_invocation(first))
        await asyncio.sleep(0)  # it polls
        invocation = Invocation(
            request_id="r", payload=b"{}", arn="arn", version="1", trace_id="trace"
        )
        dispatcher.submit(invocation)
        assert (first.invocation, dispatcher.queued) == (invocation, 0)
        assert dispatcher.poll_lost(first)
        assert await poll is None
        assert not dispatcher.poll_lost(first)
        assert await dispatcher.next_invocation(second) is invocation
        assert not dispatcher.poll_lost(second)  # it runs: that is the process's business
        assert dispatcher.respond("r", b"done", error_type=None)
        assert dispatcher.counts["succeeded"] == 1
        assert dispatcher.counts["environments_lost"] == 0  # it took no invocation with it

    asyncio.run(scenario())


def test_an_invocation_that_every_environment_declines_fails_in_the_end() -> None:
    async def scenario() -> int:
        dispatcher = Dispatcher(
            Faults(FaultSettings()), concurrency_limit=9, timeout_s=9.0, memory_mb=128
        )
        invocation = Invocation(
            request_id="r", payload=b"{}", arn="arn", version="1", trace_id="trace"
        )
        dispatcher.submit(invocation)
        declined = 0
        while dispatcher.in_flight:
            environment = Environment(name="any", kill=lambda: None, declined=True)
            assert await dispatcher.next_invocation(environment) is invocation
            dispatcher.environment_lost(environment, "exit status 75")
            declined += 1
        assert dispatcher.counts["function_errors"] == 1
        return declined

    assert asyncio.run(scenario()) == 101


def test_first_come_first_served(start_emulator: StartEmulator, tmp_path: Path) -> None:
    emulator = start_emulator()
    release = tmp_path / "release"
    blocker = call(emulator, {"await_file": str(release)}, in_flight=1)
    callers = [call(emulator, {"do": "describe"}, in_flight=n + 2) for n in range(5)]
    wait_until(lambda: emulator.stats()["queued"] == 5, what="the blocker to run")
    release.touch()
    blocker.join()
    assert [caller.result().payload["served"] for caller in callers] == [2, 3, 4, 5, 6]


def test_a_queued_invocations_time_counts_from_its_start(start_emulator: StartEmulator) -> None:
    # Four of 0.3 s on one environment, each below the limit of 1 s, 1.2 s together.
    emulator = start_emulator(timeout_s=1.0)
    emulator.invoke({})
    callers = [Caller(emulator, {"do": "sleep", "seconds": 0.3}) for _ in range(4)]
    for caller in callers:
        caller.start()
    answers = [caller.result() for caller in callers]
    assert [answer.function_error for answer in answers] == [None] * 4
    assert emulator.stats()["timeouts"] == 0


def test_only_who_waited_for_an_initialisation_reports_it(start_emulator: StartEmulator) -> None:
    emulator = start_emulator()
    cold, warm = emulator.invoke({}), emulator.invoke({})
    assert "\tInit Duration: " in cold.log
    assert "Init Duration" not in warm.log
    assert emulator.stats()["cold_starts"] == 1


def test_many_more_in_flight_than_processes(start_emulator: StartEmulator) -> None:
    emulator = start_emulator(concurrency_limit=64, processes=2)
    callers = [Caller(emulator, {"number": number}) for number in range(64)]
    for caller in callers:
        caller.start()
    assert [caller.result().payload for caller in callers] == [{"number": n} for n in range(64)]
    assert emulator.stats()["throttled"] == 0
    with pytest.raises(ClientError):
        emulator.invoke({}, name="nobody")
