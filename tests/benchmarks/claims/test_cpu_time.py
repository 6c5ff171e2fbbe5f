"""Processor time of other processes, beside what they say of themselves."""

import os
import subprocess
import sys

import pytest

from benchmarks.claims.many_actors import children, cpu_s

WORK = """
import sys, time
while time.process_time() < 0.2: pass
print(time.process_time(), flush=True)
sys.stdin.read()
"""


def test_a_childs_time_is_what_it_has_counted_itself() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        own = float(child.stdout.readline())
        assert child.pid in children(os.getpid())
        assert cpu_s(child.pid) == pytest.approx(own, abs=0.05)
        child.communicate()


def test_a_process_that_has_gone_has_no_clock() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_s(child.pid)
