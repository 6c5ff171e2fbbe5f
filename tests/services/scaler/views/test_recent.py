"""Answers that are kept for some seconds."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.scaler.views.recent import Recent


class Source:
    """Counts how often it is asked, and fails when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.now = 0.0

    def get(self, key: str) -> str:
        self.asked += 1
        if self.fails:
            raise LookupError(key)
        return f"{key}{self.asked}"


def test_an_answer_is_got_once_in_its_time_and_outlives_a_failure() -> None:
    source = Source()
    recent = Recent(get=source.get, fails_with=LookupError, ttl_s=10, now=lambda: source.now)
    source.fails = True
    with pytest.raises(LookupError):
        recent.of("a")
    with pytest.raises(LookupError):
        recent.of("a")
    assert source.asked == 1, "nobody asks again within a second"
    source.now, source.fails = 1.0, False
    assert [recent.of("a"), recent.of("a"), recent.of("b")] == ["a2", "a2", "b3"]
    source.now, source.fails = 11.0, True
    assert [recent.of("a"), recent.of("a")] == ["a2", "a2"]
    assert source.asked == 4, "a failure is not repeated at once"
    source.now, source.fails = 21.0, False
    assert recent.of("a") == "a5"


def test_nobody_waits_for_an_answer_who_can_have_the_one_before() -> None:
    now, entered, gate = [0.0], threading.Event(), threading.Event()
    answers = iter(("old", "new"))

    def get(key: str) -> str:
        answer = next(answers)
        if answer == "new":
            entered.set()
            assert gate.wait(30)
        return answer

    recent = Recent(get=get, fails_with=LookupError, ttl_s=1, now=lambda: now[0])
    assert recent.of("a") == "old"
    now[0] = 1.0
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(recent.of, "a")
        assert entered.wait(30)
        assert recent.of("a") == "old"
        gate.set()
        assert first.result(30) == "new"
    assert recent.of("a") == "new"
