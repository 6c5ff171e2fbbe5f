"""Ctrl-C twice: once asks to stop, twice ends everything."""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Self

_TERMINATED = 128 + signal.SIGTERM
_MANY = 4096
"""More signals than come between two pauses."""


class Interrupts:
    """Turns signals into a polite request first and an exception afterwards; a context manager.

    Until `armed` is set there is nothing to stop politely, so the first Ctrl-C raises already.
    SIGTERM always raises, so that whoever sends it does not wait.
    """

    def __init__(self) -> None:
        self.armed = False
        self.asked = False

    def __enter__(self) -> Self:
        # The signal itself fills the pipe. Our handler runs in the middle of whatever the main
        # thread does: setting an Event, it may wait for ever for the lock of one being waited for.
        self._signalled, self._signals = os.pipe()
        os.set_blocking(self._signals, False)
        self._previous_signals = signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
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
        signal.set_wakeup_fd(self._previous_signals)
        os.close(self._signals)
        os.close(self._signalled)

    def pause(self, seconds: float) -> None:
        """Wait for as long, or until the next signal."""
        if select.select([self._signalled], [], [], seconds)[0]:
            os.read(self._signalled, _MANY)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.armed or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)
