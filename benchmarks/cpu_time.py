"""Processor time of other processes: what a part costs, however busy the machine is."""

import time
from pathlib import Path

_ALL_THREADS = 2
"""`CPUCLOCK_SCHED`, which Linux counts in nanoseconds."""


def cpu_s(pid: int) -> float:
    """Return the processor time all threads of a process have taken so far, ended ones included.

    The clock is the one that `clock_getcpuclockid(3)` names, which Python does not offer.

    Raises:
        OSError: There is no such process.
    """
    return time.clock_gettime((~pid << 3) | _ALL_THREADS)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text(encoding="ascii").split()]
