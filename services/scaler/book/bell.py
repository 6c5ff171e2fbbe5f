"""Wakes all tasks that wait for a change."""

import asyncio


class Bell:
    """A condition for changes: every listener checks again when it rings."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self.closed = False
        """Whether it is closed, so that waiting ends."""

    def ring(self) -> None:
        """Wake all waiters."""
        rung, self._next = self._next, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """Wake all waiters permanently."""
        self.closed = True
        self.ring()

    def listen(self) -> asyncio.Event:
        """Return the next ring's future: get it before a check, so that no ring is missed."""
        return self._next

    async def heard(self, rung: asyncio.Event, timeout_s: float) -> bool:
        """Wait for a ring; return whether it came in time."""
        try:
            async with asyncio.timeout(0 if self.closed else timeout_s):
                await rung.wait()
        except TimeoutError:
            return False
        return True
