"""Ctrl-C: the first asks to stop, the second ends everything."""

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from types import FrameType
from typing import Self

_TERMINATED = 128 + signal.SIGTERM
_LOCAL_MODES = 3
"""Index of the echo flags in `termios.tcgetattr`."""
_MANY = 4096
"""More signals than arrive between two pauses."""


class Interrupts:
    """Turns signals into a polite request first and an exception afterwards; a context manager.

    Until `armed` is set there is nothing to stop politely, so even the first Ctrl-C raises. SIGTERM
    always raises, so that its sender does not wait.
    """

    def __init__(self) -> None:
        self.armed = False
        self.asked = False

    def __enter__(self) -> Self:
        # The signal itself fills the pipe. Our handler may interrupt the main thread inside
        # `Event.wait`: setting that Event here would deadlock on its lock.
        self._signalled, signals = os.pipe()
        os.set_blocking(signals, False)
        self._undo = contextlib.ExitStack()
        self._undo.enter_context(_signals_unseen())
        self._undo.callback(os.close, self._signalled)
        self._undo.callback(os.close, signals)
        previous = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        self._undo.callback(signal.set_wakeup_fd, previous)
        for number, handler in (
            (signal.SIGTERM, self._terminate),
            (signal.SIGINT, self._interrupt),
        ):
            self._undo.callback(signal.signal, number, signal.signal(number, handler))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def pause(self, seconds: float) -> None:
        """Wait for the given time, or until the next signal."""
        if select.select([self._signalled], [], [], seconds)[0]:
            os.read(self._signalled, _MANY)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.armed or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)


@contextlib.contextmanager
def _signals_unseen() -> Iterator[None]:
    """Keep a terminal from echoing `^C`.

    The echo would break a panel that is redrawn in place.
    """
    shown = _show_signals(wanted=False)
    try:
        yield
    finally:
        if shown:
            _show_signals(wanted=True)


def _show_signals(*, wanted: bool) -> bool:
    """Switch the echo of `^C` on or off; return the previous setting."""
    try:
        terminal = sys.stdin.fileno()
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return False  # in the background: a change of the terminal would stop this process
        modes = termios.tcgetattr(terminal)
        shown = bool(modes[_LOCAL_MODES] & termios.ECHOCTL)
        modes[_LOCAL_MODES] &= ~termios.ECHOCTL
        modes[_LOCAL_MODES] |= termios.ECHOCTL if wanted else 0
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
    except (AttributeError, OSError, ValueError, termios.error):
        return False  # there is no terminal
    return shown
