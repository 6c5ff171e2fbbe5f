"""Ctrl-C twice: once asks to stop, twice ends everything."""

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
"""Where `termios.tcgetattr` has the flags of what is echoed."""
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
        """Wait for as long, or until the next signal."""
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
    """Keep a terminal from writing `^C` where Ctrl-C is pressed.

    It would stand behind a panel that is redrawn in place, which then leaves a line of itself.
    """
    shown = _show_signals(wanted=False)
    try:
        yield
    finally:
        if shown:
            _show_signals(wanted=True)


def _show_signals(*, wanted: bool) -> bool:
    """Let the terminal write `^C`, or not; return whether it did before."""
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
