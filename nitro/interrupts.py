"""Ctrl-C twice: once asks to stop, twice ends everything."""

import signal
from threading import Event
from types import FrameType, TracebackType
from typing import Self

_TERMINATED = 128 + signal.SIGTERM


class Interrupts:
    """Turns signals into a polite request first and an exception afterwards; a context manager.

    Until `armed` is set there is nothing to stop politely, so the first Ctrl-C raises already.
    SIGTERM always raises, so that whoever sends it does not wait.
    """

    def __init__(self) -> None:
        self.armed = False
        self.asked = False
        self.wake = Event()
        """Set by the first Ctrl-C, to end a pause."""

    def __enter__(self) -> Self:
        self._previous = (
            signal.signal(signal.SIGINT, self._interrupt),
            signal.signal(signal.SIGTERM, self._terminate),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._previous[0])
        signal.signal(signal.SIGTERM, self._previous[1])

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.armed or self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.wake.set()

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)
