"""A bell that wakes whoever waits for a change."""

import asyncio

from services.scaler.book.bell import Bell


async def test_it_wakes_everybody_who_listens_and_for_good_when_it_is_closed() -> None:
    bell = Bell()
    bell.ring()  # nobody is there to hear it
    rung = bell.listen()
    assert not await bell.heard(rung, 0.0)
    waiting = [asyncio.create_task(bell.heard(rung, 10.0)) for _ in range(3)]
    await asyncio.sleep(0)
    bell.ring()
    assert await asyncio.gather(*waiting) == [True] * 3
    late = asyncio.create_task(bell.heard(bell.listen(), 10.0))
    await asyncio.sleep(0)
    bell.close()
    assert await late
    assert bell.closed
    assert not await bell.heard(bell.listen(), 10.0), "nobody waits any more"


async def test_a_ring_between_listening_and_waiting_is_heard() -> None:
    bell = Bell()
    rung = bell.listen()
    bell.ring()
    assert await bell.heard(rung, 10.0)
