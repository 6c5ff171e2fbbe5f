"""How many cores a process may use."""

import os
import sys
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_PERIOD_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> int:
    """Return how many cores this process may use, at least 1.

    `taskset` and SLURM allow single cores. Docker's `cpus` and Kubernetes' limits are quotas: the
    process sees all cores of the machine.
    """
    if sys.platform == "linux":
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota() -> float | None:
    """Return how many cores' time may be used; None for as much as there is."""
    try:
        quota, period = _QUOTA.read_text("ascii").split()
    except (OSError, ValueError):
        try:
            quota, period = _QUOTA_V1.read_text("ascii"), _PERIOD_V1.read_text("ascii")
        except OSError:
            return None
    try:
        cores = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):
        return None  # "max"
    return cores if cores > 0 else None  # -1 stands for no quota in the first version
