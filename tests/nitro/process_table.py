"""What the kernel says about processes, for tests that nothing is left behind."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

_PATIENCE_S = 60.0


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def children(pid: int) -> set[int]:
    """Process ids of a process's living descendants."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(folder.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child for child in found - {pid} if alive(child)}


def own_actors(pid: int) -> set[int]:
    """Process ids of the actors on a learner's own cores."""
    found = set()
    for child in children(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "functions.actor.own" in Path(f"/proc/{child}/cmdline").read_text():
                found.add(child)
    return found


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something another process does has happened."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
