"""A second process: what it gets and gives, and what becomes of it when something goes wrong."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from learning.cpu import second_process as module
from learning.cpu.second_process import (
    SecondProcess,
    SecondProcessLostError,
    Side,
    second_process,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Swaps:
    """Gives its numbers, one a turn, and returns what came for them; may be slow or die."""

    numbers: tuple[float, ...]
    slow_s: float = 0.0
    dies_at: int | None = None
    raises_at: int | None = None

    def __call__(self, side: Side) -> tuple[int, list[float]]:
        found = []
        for turn, number in enumerate(self.numbers):
            if turn == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if turn == self.raises_at:
                raise ZeroDivisionError("on purpose")
            if self.slow_s:
                time.sleep(self.slow_s)
            found.append(side.swap(number))
        return os.getpid(), found


@pytest.fixture
def process() -> Iterator[SecondProcess]:
    made = SecondProcess()
    yield made
    made.close()


def test_both_sides_get_the_others_number_of_the_same_turn(process: SecondProcess) -> None:
    ours, theirs = tuple(map(float, range(2000))), tuple(map(float, range(5000, 7000)))
    for _ in range(2):
        (own_pid, found), (pid, their_found) = process.both(Swaps(ours), Swaps(theirs))
        assert own_pid == os.getpid() != pid
        assert (found, their_found) == ([*theirs], [*ours])


@pytest.mark.parametrize(("ours_s", "theirs_s"), [(0.005, 0.0), (0.0, 0.005)])
def test_a_side_that_has_to_wait_sleeps_and_is_woken(
    process: SecondProcess, ours_s: float, theirs_s: float
) -> None:
    assert max(ours_s, theirs_s) > module.PATIENCE_S
    (_, found), (_, their_found) = process.both(
        Swaps((1.0, 2.0), slow_s=ours_s), Swaps((3.0, 4.0), slow_s=theirs_s)
    )
    assert (found, their_found) == ([3.0, 4.0], [1.0, 2.0])


@pytest.mark.parametrize("bad", [{"dies_at": 1}, {"raises_at": 1}, {"dies_at": 0}])
def test_a_process_that_ends_is_told_of_and_of_no_further_use(
    process: SecondProcess, bad: dict[str, int]
) -> None:
    why = "on purpose" if "raises_at" in bad else f"ended with -{signal.SIGKILL:d}"
    with pytest.raises(SecondProcessLostError, match=why):
        process.both(Swaps((1.0, 2.0)), Swaps((1.0, 2.0), **bad))
    assert not process.offers()
    assert not process.usable
    with pytest.raises(SecondProcessLostError):
        process.both(Swaps((1.0,)), Swaps((1.0,)))


def test_a_process_that_ends_after_the_last_turn_is_told_of_too(process: SecondProcess) -> None:
    with pytest.raises(SecondProcessLostError):
        process.both(Swaps((1.0,)), Swaps((1.0, 2.0), dies_at=1))


def test_a_process_that_does_not_answer_is_lost(
    process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.2)
    with pytest.raises(SecondProcessLostError, match="silent for 0.2 s"):
        process.both(Swaps((1.0,)), Swaps((1.0,), slow_s=PATIENCE_S))
    assert not process.usable


def test_one_that_is_waited_for_again_and_again_rests(
    process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a side that takes 5 ms for a turn, nearly all of the time is waited."""
    monkeypatch.setattr(module, "RESTS", 2)
    numbers = (1.0,) * 64
    assert process.offers()
    process.both(Swaps(numbers[1:]), Swaps(numbers[1:], slow_s=10 * module.PATIENCE_S))
    assert process.offers(), "too few turns to tell"
    process.both(Swaps(numbers), Swaps(numbers, slow_s=10 * module.PATIENCE_S))
    assert [process.offers() for _ in range(3)] == [False, False, True]
    assert process.usable


def test_nothing_of_its_work_is_kept(process: SecondProcess, tmp_path: Path) -> None:
    """Neither work nor result waits for the next piece of work, which may be long in coming."""
    told = tmp_path / "told"
    os.mkfifo(told)
    reader = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    try:
        process.both(Swaps(()), Mourned(str(told), os.getpid(), b"w"))
        gone = {_byte(reader) for _ in range(2)}
    finally:
        os.close(reader)
    assert gone == {b"w", b"r"}
    assert process.usable


@dataclass(frozen=True)
class Mourned:
    """Work, and its result, whose end in another process than the maker's is told to a pipe."""

    told: str
    maker: int
    letter: bytes

    def __call__(self, side: Side) -> "Mourned":  # noqa: ARG002 - as all work has it
        return Mourned(self.told, self.maker, b"r")

    def __del__(self) -> None:
        if os.getpid() != self.maker:
            Path(self.told).write_bytes(self.letter)


def _byte(reader: int) -> bytes:
    """Return the next byte of a pipe, or nothing when none comes."""
    pollster = select.poll()
    pollster.register(reader, select.POLLIN)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pollster.poll(1000 * (deadline - time.monotonic()))
        with contextlib.suppress(BlockingIOError):
            if said := os.read(reader, 1):
                return said
    return b""


def test_our_own_error_ends_the_process_which_would_wait_for_ever(process: SecondProcess) -> None:
    with pytest.raises(ZeroDivisionError):
        process.both(Swaps((1.0, 2.0), raises_at=1), Swaps((1.0, 2.0)))
    assert not process.usable


def test_what_cannot_be_sent_is_an_error(process: SecondProcess) -> None:
    with pytest.raises(Exception, match="lambda"):
        process.both(Swaps((1.0,)), lambda _: None)
    assert not process.usable


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_with_its_parent_however_that_ends(busy: bool) -> None:
    """Idle it sees the pipe's end; in the middle of work, that it has another parent."""
    source = f"""
import os, sys, time
from learning.cpu.second_process import SecondProcess
from tests.learning.cpu.test_second_process import Swaps
process = SecondProcess()
(_, (pid, _)) = process.both(Swaps((1.0,)), Swaps((1.0,)))
def here(swap):
    print(pid, flush=True)
    time.sleep({PATIENCE_S})
if {busy}:
    process.both(here, Swaps((1.0,)))
here(None)
"""
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    deadline = time.monotonic() + PATIENCE_S
    while alive(pid) and time.monotonic() < deadline:
        os.sched_yield()
    assert not alive(pid)


def refuse() -> SecondProcess:
    raise OSError(38, "semaphores are not implemented")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_gpu_gets_none() -> None:
    assert second_process(torch.device("cuda")) is None


def test_there_is_none_without_a_second_core(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    assert second_process(torch.device("cpu")) is None
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    monkeypatch.setattr(module, "SecondProcess", refuse)
    assert second_process(torch.device("cpu")) is None
    assert "no second process" in caplog.text
    monkeypatch.setattr(module, "SecondProcess", SecondProcess)
    made = second_process(torch.device("cpu"))
    assert made is not None
    made.close()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert second_process(torch.device("cpu")) is None
