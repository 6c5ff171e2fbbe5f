"""The number of cores that a process may use."""

import os
import sys
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_PERIOD_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    `taskset` and SLURM set the allowed cores. Docker's `cpus` and Kubernetes' limits are quotas:
    the process still sees all cores of the machine.
    """
    if sys.platform == "linux":
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota() -> float | None:
    """Return the CPU quota in cores; None without one."""
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
    return cores if cores > 0 else None  # in cgroup version 1, -1 means no quota
