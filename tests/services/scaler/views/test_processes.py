"""Real processes, held against what they were made to use."""

import itertools
import os
import subprocess
import sys

import pytest

from services.scaler.views.processes import MachineProcesses

_BURN = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"
_BUSY = f"{_BURN}print(flush=True); input()"
_LARGE = "hold = bytearray(b'x' * 200_000_000); print(flush=True); input()"


def test_programs_are_told_apart_with_their_cores_and_memory() -> None:
    seconds = itertools.count(step=2)
    processes = MachineProcesses(os.getpid(), clock=lambda: next(seconds))
    first = {view.name: view for view in processes.look()}
    assert all(view.cpu_cores is None for view in first.values())
    commands = [["-m", "timeit", "-n", "1", "-r", "1", _BUSY], ["-c", _LARGE]]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe)
        for command in commands
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        seen = {view.name: view for view in processes.look()}
    finally:
        for process in started:
            process.communicate(b"\n")
    assert seen["timeit"].count == 1
    cores = seen["timeit"].cpu_cores
    assert cores is not None
    assert 0.5 / 2 <= cores < 1.5 / 2, "half a second and its start, within two seconds"
    assert seen[_LARGE].memory_mb == pytest.approx(200, abs=50)


def test_nothing_is_shown_of_a_process_that_has_ended() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        processes = MachineProcesses(process.pid)
        assert [view.name for view in processes.look()] == ["cat"]
        process.communicate()
    assert processes.look() == ()
