"""A child process of the local system: in its own group, logged, never orphaned."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")
_TAIL_BYTES = 4096


class ManagedProcess:
    """A named child whose output goes to a log file and whose whole group is killed with it.

    Args:
        name: For messages.
        command: Program and arguments.
        env: All of its environment variables.
        log_path: File for its output, which is appended.
        folder: Its working folder.
        death_signal: Signal to it if this process dies first (Linux).
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log_path: Path,
        folder: Path,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = [*command]
        self._folder = folder
        self._death_signal = death_signal
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._group_ended = False

    @property
    def pid(self) -> int:
        """Process id of the last start.

        Raises:
            RuntimeError: It was never started.
        """
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    def start(self) -> None:
        """Start the command; returns at once.

        Raises:
            RuntimeError: It is running already.
        """
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError(f"{self.name} is running already (pid {self._process.pid})")
        self._group_ended = False
        tether = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid())]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*tether, str(int(self._death_signal)), *self._command],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def exit_code(self) -> int | None:
        """Exit code of an ended process (negative: the signal), None while it runs."""
        return self._process.poll() if self._process else None

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, for at most `timeout_s`; return at once if that is not positive."""
        if self._process is not None and timeout_s > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kill the whole group at once and collect the process; safe to repeat."""
        if self._process is None or self._group_ended:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._group_ended = True  # the kernel may reuse its id from now on

    def log_tail(self, lines: int = 12) -> str:
        """Return the last lines of the log, for an error message."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
