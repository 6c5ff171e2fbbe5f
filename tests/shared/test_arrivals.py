"""The text that Redis holds of an actor's end, read back."""

import pytest

from shared.arrivals import (
    MAX_REASON_CHARS,
    Arrival,
    arrival_of,
    claim_field,
    claimed,
    failure_token,
)


def test_a_claim_is_read_back_as_a_success() -> None:
    assert arrival_of(claim_field("evaluate", 12).encode()) == Arrival("evaluate", 12, None)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("crashed", "crashed"),
        ("exit: code 1: no memory", "exit: code 1: no memory"),
        ("", "no reason given"),
        ("x" * 1000, "x" * MAX_REASON_CHARS),
        ("broken \ud800 text", "broken ? text"),
    ],
)
def test_a_failure_is_read_back_with_its_reason(reason: str, told: str) -> None:
    assert arrival_of(failure_token("sample", 3, reason)) == Arrival("sample", 3, told)


def test_claims_are_found_among_counters_in_index_order() -> None:
    fields = [b"sample:10", b"late", b"sample:2", b"closed", b"evaluate:0", b"duplicate"]
    found = [(a.mode, a.actor_index) for a in claimed(fields)]
    assert found == [("evaluate", 0), ("sample", 2), ("sample", 10)]
