"""The output of an environment, read from one pipe and logged by line.

Standard output and standard error share the pipe, as in Lambda's log stream. The pipe is read when
the loop reports it readable, and on request. A runtime writes its output before it posts its
response, so draining the pipe at the response gives all of an invocation's output.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

_logger = logging.getLogger(__name__)

_CHUNK_BYTES = 65536
_CHUNKS_AT_ONCE = 16
"""More than a pipe holds: one read returns all earlier output, even if writing continues."""
_LONGEST_LINE_BYTES = 65536


class Output:
    """The pipe of one environment."""

    def __init__(self, name: str, *, wrote: Callable[[bytes], None], log_path: Path | None) -> None:
        """Open the pipe.

        Args:
            name: The environment's name, for log lines.
            wrote: Called with every chunk.
            log_path: File to append to; None logs lines in the emulator's own log.
        """
        self._name = name
        self._wrote = wrote
        self._line = bytearray()
        self._file = log_path.open("ab", buffering=0) if log_path is not None else None
        self.write_fd: int | None
        self._read_fd, self.write_fd = os.pipe()
        self._open = True
        os.set_blocking(self._read_fd, False)
        asyncio.get_running_loop().add_reader(self._read_fd, self.settle)

    def handed_over(self) -> None:
        """Close our copy of the write end: the environment has its own, or failed to start."""
        if self.write_fd is not None:
            os.close(self.write_fd)
            self.write_fd = None

    def settle(self) -> None:
        """Read all output so far."""
        for _ in range(_CHUNKS_AT_ONCE if self._open else 0):
            try:
                chunk = os.read(self._read_fd, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                asyncio.get_running_loop().remove_reader(self._read_fd)
                return
            self._wrote(chunk)
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        if self._file is not None:
            try:
                self._file.write(chunk)
            except OSError as error:
                _logger.error("%s: cannot write its log file, logging here: %s", self._name, error)
                self._file.close()
                self._file = None
            else:
                return
        self._line += chunk
        *lines, rest = bytes(self._line).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._line = bytearray(rest)
        for line in lines:
            self._log(line)

    def _log(self, line: bytes) -> None:
        # The runtime client separates the lines of a stack trace with carriage returns.
        text = line.decode(errors="replace").replace("\r", " | ")
        _logger.info("%s: %s", self._name, text)

    def close(self) -> None:
        """Read the rest and close; safe to repeat."""
        if not self._open:
            return
        self.handed_over()
        self.settle()
        asyncio.get_running_loop().remove_reader(self._read_fd)
        self._open = False
        os.close(self._read_fd)
        if self._line:
            self._log(bytes(self._line))
        if self._file is not None:
            self._file.close()
