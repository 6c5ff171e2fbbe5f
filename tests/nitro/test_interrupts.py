import signal

import pytest

from nitro.interrupts import Interrupts


def test_the_first_interrupt_asks_and_the_second_ends() -> None:
    with Interrupts() as interrupts:
        interrupts.armed = True
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked
        assert interrupts.wake.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


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
