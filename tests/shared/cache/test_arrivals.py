"""The text that Redis holds of an actor's end, read back."""

import pytest

from functions.actor.actor import PolicyGoneError, StartsGoneError
from functions.actor.errors import RolloutError
from functions.actor.watchdog import EnvironmentHungError
from functions.gradient.learner import WeightsGoneError
from shared.cache.arrivals import (
    FAILURE_KINDS,
    MAX_REASON_CHARS,
    Arrival,
    answered,
    arrival_of,
    claim_field,
    failure_token,
)
from shared.environments.spaces import UnsupportedEnvironment


def test_a_claim_is_read_back_as_a_success() -> None:
    assert arrival_of(claim_field("evaluate", 12).encode()) == Arrival("evaluate", 12, None)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("crashed", "crashed"),
        ("exit: code 1: no memory", "exit: code 1: no memory"),
        ("", "no reason given"),
        ("x" * 5000, "x" * MAX_REASON_CHARS),
        ("broken \ud800 text", "broken ? text"),
    ],
)
def test_a_failure_is_read_back_with_its_reason(reason: str, told: str) -> None:
    token = failure_token("sample", 3, attempt=2, reason=reason)
    assert arrival_of(token) == Arrival("sample", 3, told, attempt=2)


def test_a_function_whose_task_went_with_the_cache_has_not_failed() -> None:
    for error in (PolicyGoneError, StartsGoneError, WeightsGoneError):
        assert FAILURE_KINDS[error.__name__] == "vanished"
    token = failure_token("evaluate", 1, attempt=0, reason="gone", kind="vanished")
    assert arrival_of(token) == Arrival("evaluate", 1, "gone", kind="vanished")


@pytest.mark.parametrize("error", [RolloutError, EnvironmentHungError, UnsupportedEnvironment])
def test_what_the_environment_did_is_told_from_what_was_lost(error: type[Exception]) -> None:
    kind = FAILURE_KINDS[error.__name__]
    assert kind == ("hung" if error is EnvironmentHungError else "environment")
    told = 'failed: OSError\n  File "env.py", line 3'
    token = failure_token("sample", 3, attempt=0, reason=told, kind=kind)
    assert arrival_of(token) == Arrival("sample", 3, told, kind=kind)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"sample",
        b"sample:",
        b"sample:x",
        b"sample:1:2:why",
        b"sample:1:x:lost:why",
        b"sam:1",
    ],
)
def test_what_is_no_token_says_nothing(token: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert arrival_of(token) is None
    assert "no actor's token" in caplog.text
    assert answered([b"sample:0", token]) == [Arrival("sample", 0, None)]


def test_actors_are_found_among_counters_in_index_order() -> None:
    fields = [b"sample:10", b"late", b"sample:2", b"closed", b"evaluate:0", b"duplicate"]
    found = [(a.mode, a.actor_index) for a in answered(fields)]
    assert found == [("evaluate", 0), ("sample", 2), ("sample", 10)]


def test_a_failure_is_found_unless_the_actor_delivered_after_all() -> None:
    fields = [
        b"sample:1:4:lost:time-out",
        b"sample:1",
        b"sample:10",
        b"sample:3",
        b"sample:3:0:lost:gone",
        b"evaluate:1:0:lost:crashed: no memory",
        b"sample:2:1:lost:gone again",
        b"sample:2:0:lost:gone",
    ]
    for told in (fields, fields[::-1]):
        assert answered(told) == [
            Arrival("evaluate", 1, "crashed: no memory"),
            Arrival("sample", 1, None),
            Arrival("sample", 2, "gone again", attempt=1),
            Arrival("sample", 3, None),
            Arrival("sample", 10, None),
        ]
