"""Wakes whoever waits for something to change."""

import asyncio


class Bell:
    """Rung when something has changed; everybody who listens looks again."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self.closed = False
        """Whether nobody should wait any more."""

    def ring(self) -> None:
        """Wake everybody who waits."""
        rung, self._next = self._next, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """Wake everybody, for good."""
        self.closed = True
        self.ring()

    def listen(self) -> asyncio.Event:
        """Return what the next ring sets: listen before a look, so that none is missed."""
        return self._next

    async def heard(self, rung: asyncio.Event, timeout_s: float) -> bool:
        """Wait for a ring; return whether it came before the time was over."""
        try:
            async with asyncio.timeout(0 if self.closed else timeout_s):
                await rung.wait()
        except TimeoutError:
            return False
        return True
