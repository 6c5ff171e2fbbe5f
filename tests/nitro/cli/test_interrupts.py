import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time

import pytest

from nitro.cli.interrupts import Interrupts


def test_the_first_interrupt_asks_and_the_second_ends() -> None:
    with Interrupts() as interrupts:
        interrupts.armed = True
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_one_pause() -> None:
    with Interrupts() as interrupts:
        interrupts.armed = True
        signal.raise_signal(signal.SIGINT)
        start = time.monotonic()
        interrupts.pause(3600.0)
        interrupts.pause(0.01)
        assert 0.01 <= time.monotonic() - start < 3600


def test_an_interrupt_at_any_moment_of_a_pause_ends_it(request: pytest.FixtureRequest) -> None:
    """Were there a lock that both take, one in fifty would wait for ever."""
    moments = random.Random(1)
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    request.addfinalizer(lambda: signal.signal(signal.SIGALRM, before))
    for _ in range(1000):
        with Interrupts() as interrupts:
            interrupts.armed = True
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 3e-5))
            while not interrupts.asked:
                interrupts.pause(3600.0)


def test_before_there_is_anything_to_stop_the_first_interrupt_ends() -> None:
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not interrupts.asked


def test_a_termination_unwinds() -> None:
    with Interrupts(), pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


_WAITS = """
from nitro.cli.interrupts import Interrupts
with Interrupts() as interrupts:
    interrupts.armed = True
    print("ready", flush=True)
    while not interrupts.asked:
        interrupts.pause(60.0)
    print("asked", flush=True)
"""


def test_a_terminal_does_not_write_where_ctrl_c_is_pressed() -> None:
    """It would stand behind a panel that is redrawn in place."""
    here, there = pty.openpty()
    before = termios.tcgetattr(there)

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        [sys.executable, "-c", _WAITS],
        stdin=there,
        stdout=there,
        stderr=there,
        preexec_fn=take_terminal,
    ) as process:
        said = b""
        while b"ready" not in said:
            said += os.read(here, 1000)
        os.write(here, b"\x03")
        while b"asked" not in said:
            said += os.read(here, 1000)
        assert process.wait(60) == 0
    assert b"^C" not in said
    assert termios.tcgetattr(there) == before
    os.close(here)
    os.close(there)
