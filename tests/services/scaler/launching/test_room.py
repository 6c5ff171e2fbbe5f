"""Places for invocations, without a function."""

import asyncio
from types import SimpleNamespace

import pytest

from services.scaler.launching import room as room_module
from services.scaler.launching.room import Room


class Invocations:
    """Invocations that hold their place until they are let go."""

    def __init__(self, room: Room, number: int) -> None:
        self.started_in_s: list[float | None] = []
        self._leave = [asyncio.Event() for _ in range(number)]
        self._inside: set[int] = set()
        self._tasks = [asyncio.create_task(self._stay(room, i)) for i in range(number)]

    async def inside(self) -> list[int]:
        """Return those that have a place, once all that can take one have."""
        for _ in range(10):
            await asyncio.sleep(0)
        return sorted(self._inside)

    def let_go(self, *indices: int) -> None:
        for index in indices:
            self._leave[index].set()

    def cancel(self, *indices: int) -> None:
        for index in indices:
            self._tasks[index].cancel()

    async def ended(self) -> None:
        self.let_go(*range(len(self._leave)))
        await asyncio.gather(*self._tasks)

    async def _stay(self, room: Room, index: int) -> None:
        async with room.place() as starts_in_s:
            self.started_in_s.append(starts_in_s)
            if starts_in_s is not None:
                self._inside.add(index)
                await self._leave[index].wait()
                self._inside.remove(index)


@pytest.mark.parametrize(("most", "limit"), [(2, None), (6, 2), (2, 6)])
async def test_no_more_have_a_place_than_the_pool_and_the_account_allow(
    most: int, limit: int | None
) -> None:
    room = Room(most=most, limit=lambda: limit)
    invocations = Invocations(room, 6)
    for left in range(6, 0, -1):
        inside = await invocations.inside()
        assert len(inside) == min(2, left)
        invocations.let_go(inside[0])
    await invocations.ended()


async def test_those_that_wait_start_together_once_the_account_allows_more() -> None:
    limits = [1]
    invocations = Invocations(Room(most=6, limit=lambda: limits[-1]), 6)
    (first,) = await invocations.inside()
    limits.append(5)
    invocations.let_go(first)  # its end lets in all five others, none of which has ended
    assert len(await invocations.inside()) == 5
    await invocations.ended()


async def test_environments_start_one_after_the_other_and_warm_ones_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(room_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    room = Room(most=8, cold_starts_per_s=5.0)
    for later_s, expected in (
        (0.0, [0.0, 0.2, 0.4, 0.6, 0.8]),
        (299.0, [0.0] * 5),
        (301.0, [0.0, 0.2, 0.4, 0.6, 0.8]),
    ):
        now[0] += later_s
        invocations = Invocations(room, 5)
        await invocations.inside()
        assert invocations.started_in_s == pytest.approx(expected)
        await invocations.ended()


async def test_a_cancelled_invocation_frees_its_place_and_a_cancelled_wait_takes_none() -> None:
    room = Room(most=1)
    invocations = Invocations(room, 3)
    (holder,) = await invocations.inside()
    waiter, last = sorted({0, 1, 2} - {holder})
    invocations.cancel(holder, waiter)
    assert last in await invocations.inside()
    invocations.let_go(last)
    assert await room.close(wait_s=10.0)


async def test_closing_gives_out_no_more_places_and_waits_for_the_others() -> None:
    room = Room(most=2)
    invocations = Invocations(room, 6)
    assert len(await invocations.inside()) == 2
    assert not await room.close(wait_s=0.0)
    assert invocations.started_in_s.count(None) == 4
    closing = asyncio.create_task(room.close(wait_s=10.0))
    await invocations.ended()
    assert await closing
    assert room.closed


async def test_a_pause_ends_when_the_room_is_closed() -> None:
    room = Room(most=1)
    assert await room.pause(0.001)
    pausing = asyncio.create_task(room.pause(60.0))
    await asyncio.sleep(0)
    assert await room.close(wait_s=0.0)
    assert not await pausing
    assert not await room.pause(60.0)
