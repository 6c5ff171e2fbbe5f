"""Faults on purpose: the dice alone, and their effect through the whole emulator."""

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from services.emulator.faults import Faults, FaultSettings
from tests.services.emulator.conftest import RunningEmulator, StartEmulator, wait_until


def draws(**settings: float) -> list[tuple[bool, float | None, bool]]:
    faults = Faults(FaultSettings.model_validate(settings))
    return [(faults.throttles(), faults.crash_delay_s(), faults.duplicates()) for _ in range(400)]


def test_no_faults_by_default() -> None:
    assert set(draws()) == {(False, None, False)}


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    rates = {"throttle_rate": 0.3, "crash_rate": 0.3, "duplicate_rate": 0.3}
    assert draws(seed=1, **rates) == draws(seed=1, **rates)
    assert draws(seed=1, **rates) != draws(seed=2, **rates)


def test_kinds_do_not_disturb_each_other() -> None:
    alone = [throttled for throttled, _, _ in draws(throttle_rate=0.3)]
    together = [
        throttled for throttled, _, _ in draws(throttle_rate=0.3, crash_rate=1, crash_next=9)
    ]
    assert alone == together
    assert 0.2 < sum(alone) / len(alone) < 0.4


def test_the_next_n_are_hit_whatever_the_rate() -> None:
    drawn = draws(throttle_next=2, crash_next=3, crash_after_ms=250)
    assert [throttled for throttled, _, _ in drawn[:4]] == [True, True, False, False]
    assert [delay for _, delay, _ in drawn[:4]] == [0.25, 0.25, 0.25, None]


def test_throttling_on_request(emulator: RunningEmulator) -> None:
    emulator.put_faults(throttle_next=1)
    with pytest.raises(emulator.client().exceptions.TooManyRequestsException):
        emulator.invoke({})
    assert emulator.invoke({}).status == 200


def test_crash_the_next_n(emulator: RunningEmulator) -> None:
    before = emulator.stats()
    emulator.put_faults(crash_next=2)
    doomed = [emulator.invoke({"do": "sleep", "seconds": 60}) for _ in range(2)]
    for invoked in doomed:
        assert invoked.payload["errorType"] == "Runtime.ExitError"
        assert "signal: killed" in invoked.payload["errorMessage"]
    assert emulator.invoke({}).function_error is None
    after = emulator.stats()
    assert after["crashes_on_purpose"] - before["crashes_on_purpose"] == 2
    assert after["environments_lost"] - before["environments_lost"] == 2


def test_a_crash_that_comes_too_late_spares_the_invocation(emulator: RunningEmulator) -> None:
    before = emulator.stats()
    emulator.put_faults(crash_next=1, crash_after_ms=3_600_000)
    assert emulator.invoke({}).function_error is None
    after = emulator.stats()
    assert after["crashes_on_purpose"] == before["crashes_on_purpose"]
    assert after["environments_lost"] == before["environments_lost"]


def test_duplicate_delivery_comes_after_the_first(
    emulator: RunningEmulator, tmp_path: Path
) -> None:
    before = emulator.stats()
    emulator.put_faults(duplicate_rate=1)
    deliveries = tmp_path / "deliveries"
    first = emulator.invoke({"append_to": str(deliveries)})
    wait_until(lambda: emulator.stats()["in_flight"] == 0, what="the duplicate to end")
    after = emulator.stats()
    assert after["duplicates"] - before["duplicates"] == 1
    assert after["succeeded"] - before["succeeded"] == 2
    assert after["invoked"] - before["invoked"] == 1
    assert deliveries.read_text().split() == [first.request_id, first.request_id]


def test_start_delay_holds_every_invocation_back(emulator: RunningEmulator) -> None:
    emulator.put_faults(start_delay_ms=150)
    times = [time.monotonic()]
    for _ in range(2):
        emulator.invoke({})
        times.append(time.monotonic())
    assert all(later - earlier >= 0.15 for earlier, later in pairwise(times))  # never less


def test_faults_from_the_environment_and_what_is_left_of_them(
    start_emulator: StartEmulator,
) -> None:
    emulator = start_emulator(faults__crash_next=1, faults__throttle_next=1)
    with pytest.raises(emulator.client().exceptions.TooManyRequestsException):
        emulator.invoke({})
    left = json.loads(emulator.request("GET", "/emulator/faults")[2])
    assert (left["throttle_next"], left["crash_next"]) == (0, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"crash_rate": 2}',
        b'{"crash_rat": 1}',
        b'{"throttle_rate": NaN}',
        b'{"crash_after_ms": Infinity}',
    ],
)
def test_wrong_faults_are_refused_and_change_nothing(
    emulator: RunningEmulator, body: bytes
) -> None:
    emulator.put_faults(crash_after_ms=5)
    status, _, answer = emulator.request("PUT", "/emulator/faults", body=body)
    assert (status, b"detail" in answer) == (422, True)
    assert json.loads(emulator.request("GET", "/emulator/faults")[2])["crash_after_ms"] == 5
