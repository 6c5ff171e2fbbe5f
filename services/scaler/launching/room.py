"""Room on a function: how many invocations run at a time, and how many environments start."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from services.scaler.launching.in_use import InUse

_KEPT_S = 300.0
"""How long Lambda usually keeps an idle environment at least."""


class Room:
    """Places for running invocations, until it is closed."""

    def __init__(
        self,
        *,
        most: int,
        limit: Callable[[], int | None] = lambda: None,
        cold_starts_per_s: float = math.inf,
    ) -> None:
        """Begin without any invocation.

        `most` run at a time, and no more than the account's `limit` as last seen: more would only
        be throttled. Environments of a subnet share one network interface, which loses connections
        when too many open at once: no more than `cold_starts_per_s` are started.
        """
        self._most = most
        self._limit = limit
        self._closing = asyncio.Event()
        self._freed = asyncio.Condition()
        """Notified when an invocation has ended."""
        self._running = 0
        self._in_use = InUse()
        self._start_every_s = 1 / cold_starts_per_s
        self._next_start_at = -math.inf

    @property
    def closed(self) -> bool:
        """Whether nothing more starts."""
        return self._closing.is_set()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float | None]:
        """Wait for a place and hold it; yield the seconds until the start, None for never."""
        starts_in_s = await self._take()
        try:
            yield starts_in_s
        finally:
            if starts_in_s is not None:
                await self._free()

    async def pause(self, seconds: float) -> bool:
        """Wait; return False, and at once, when it is closed."""
        if seconds > 0 and not self.closed:
            try:
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
            except TimeoutError:
                return True
        return not self.closed

    async def close(self, *, wait_s: float) -> bool:
        """Give out no more places and wait for the rest; return whether all ended."""
        self._closing.set()
        async with self._freed:
            self._freed.notify_all()
            try:
                async with asyncio.timeout(wait_s):
                    await self._freed.wait_for(lambda: self._running == 0)
            except TimeoutError:
                pass
            return self._running == 0

    async def _take(self) -> float | None:
        async with self._freed:
            await self._freed.wait_for(lambda: self.closed or self._has_place())
            if self.closed:
                return None
            self._running += 1
            if self._has_place():
                # Each waiter wakes the next, so a thousand waiters need not all check at every end.
                self._freed.notify()
            now = time.monotonic()
            starts_at = self._starts_at(now)
            self._in_use.note(self._running, now)
            return starts_at - now

    async def _free(self) -> None:
        self._running -= 1
        async with self._freed:
            if self.closed:
                self._freed.notify_all()
            else:
                self._freed.notify()

    def _starts_at(self, now: float) -> float:
        """Return the start time: now, unless a new environment has to start first."""
        if now - self._in_use.last(self._running) < _KEPT_S:
            return now
        starts_at = max(now, self._next_start_at)
        self._next_start_at = starts_at + self._start_every_s
        return starts_at

    def _has_place(self) -> bool:
        limit = self._limit()
        return self._running < self._most and (limit is None or self._running < max(1, limit))
