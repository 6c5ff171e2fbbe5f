"""A round of 200 actors: every trajectory once, none lost; and processor time is what it says."""

import os
import subprocess
import sys

import pytest

from benchmarks.claims.system.many_actors import children, cpu_s, pushing_fleet
from shared.contracts.rounds import TrajectoryCounts

NUM_ACTORS = 200
WORK = """
import sys, time
while time.process_time() < 0.2: pass
print(time.process_time(), flush=True)
sys.stdin.read()
"""


def test_no_trajectory_of_200_actors_is_lost_or_counted_twice() -> None:
    with pushing_fleet(processes=2) as fleet:
        (done,) = fleet.rounds(NUM_ACTORS, 1)
        stats = fleet.emulator_stats()
    expected = TrajectoryCounts(launched=NUM_ACTORS, used=NUM_ACTORS, late=0, duplicate=0, lost=0)
    assert done.counts == expected
    assert done.launch_s > 0
    # Two rounds of rollouts and one question what the environment looks like.
    assert stats["invoked"] == stats["succeeded"] == 2 * NUM_ACTORS + 1
    assert stats["in_flight"] == stats["throttled"] == 0


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
