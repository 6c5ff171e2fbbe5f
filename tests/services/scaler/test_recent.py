"""Answers that are kept for some seconds."""

import asyncio

import pytest

from services.scaler.recent import Recent


class Source:
    """Counts how often it is asked, and fails when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.now = 0.0

    async def get(self, key: str) -> str:
        self.asked += 1
        if self.fails:
            raise LookupError(key)
        return f"{key}{self.asked}"


async def test_an_answer_is_got_once_in_its_time_and_outlives_a_failure() -> None:
    source = Source()
    recent = Recent(get=source.get, fails_with=LookupError, ttl_s=10, now=lambda: source.now)
    source.fails = True
    with pytest.raises(LookupError):
        await recent.of("a")
    with pytest.raises(LookupError):
        await recent.of("a")
    assert source.asked == 1, "nobody asks again within a second"
    source.now, source.fails = 1.0, False
    assert [await recent.of("a"), await recent.of("a"), await recent.of("b")] == ["a2", "a2", "b3"]
    source.now, source.fails = 11.0, True
    assert [await recent.of("a"), await recent.of("a")] == ["a2", "a2"]
    assert source.asked == 4, "a failure is not repeated at once"
    source.now, source.fails = 21.0, False
    assert await recent.of("a") == "a5"


async def test_nobody_waits_for_an_answer_who_can_have_the_one_before() -> None:
    now, entered, gate = [0.0], asyncio.Event(), asyncio.Event()
    answers = iter(("old", "new"))

    async def get(key: str) -> str:
        answer = next(answers)
        if answer == "new":
            entered.set()
            await gate.wait()
        return answer

    recent = Recent(get=get, fails_with=LookupError, ttl_s=1, now=lambda: now[0])
    assert [*await asyncio.gather(recent.of("a"), recent.of("a"))] == ["old", "old"]
    now[0] = 1.0
    first = asyncio.create_task(recent.of("a"))
    await entered.wait()
    assert await recent.of("a") == "old"
    gate.set()
    assert [await first, await recent.of("a")] == ["new", "new"]
