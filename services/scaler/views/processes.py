"""The processes of a system on one machine: how much of its cores and memory they use."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from shared.contracts.views.system import ProcessView

_MB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    at: float
    cpu_s: dict[int, float]
    """Processor seconds that each process has used, by its id."""


class MachineProcesses:
    """A process, the `root`, and all its descendants; the clock is monotonic."""

    def __init__(self, root: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = psutil.Process(root)
        self._clock = clock
        self._before: _Sample | None = None

    def look(self) -> tuple[ProcessView, ...]:
        """Return each program's usage, largest memory first; empty once the root has ended."""
        now, before = self._clock(), self._before
        cpu_s: dict[int, float] = {}
        memory: defaultdict[str, list[int]] = defaultdict(list)
        fresh_s: defaultdict[str, float] = defaultdict(float)
        for process in self._family():
            try:
                with process.oneshot():
                    name, times = _program(process.cmdline()), process.cpu_times()
                    memory[name].append(process.memory_info().rss)
            except psutil.Error:  # it ended meanwhile
                continue
            cpu_s[process.pid] = used_s = times.user + times.system
            # A new process has used all of its time since the last look.
            fresh_s[name] += max(
                0.0, used_s - (before.cpu_s.get(process.pid, 0.0) if before else 0)
            )
        self._before = _Sample(at=now, cpu_s=cpu_s)
        elapsed_s = now - before.at if before else 0.0
        views = (
            ProcessView(
                name=name,
                count=len(sizes),
                cpu_cores=fresh_s[name] / elapsed_s if elapsed_s > 0 else None,
                memory_mb=sum(sizes) / _MB,
            )
            for name, sizes in memory.items()
        )
        return tuple(sorted(views, key=lambda view: -view.memory_mb))

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []


def _program(command: list[str]) -> str:
    """Return a command's program: the module after `-m`, or the file's name."""
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    interpreter = bool(command) and Path(command[0]).name.startswith("python")
    files = [part for part in command[1:] if not part.startswith("-")] if interpreter else command
    return Path(files[0]).name if files else "python" if interpreter else "unnamed"
