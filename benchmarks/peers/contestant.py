"""A contestant in a process of its own: it measures once per request and waits in between.

What it says on standard output: one JSON object about itself at the start, then one `Timing` for
each line it reads from standard input. While it waits it takes next to no processor time (what Ray
starts takes some 4 % of a core, a local system of ours 1 %), so contestants of different
interpreters can take turns.
"""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field, FiniteFloat, ValidationError

from shared.contracts.message import Message

ROOT = Path(__file__).resolve().parents[2]
"""Folder our packages lie in."""
_TAIL_CHARS = 2000


class ContestantError(RuntimeError):
    """A contestant ended or answered nonsense."""


class Timing(Message):
    """One measurement."""

    steps: Annotated[int, Field(gt=0)]
    """Environment steps taken."""
    seconds: Annotated[FiniteFloat, Field(gt=0)]

    @property
    def steps_per_s(self) -> float:
        """The rate."""
        return self.steps / self.seconds


class Contestant:
    """A running contestant; a context manager that ends it.

    Args:
        command: Program and arguments.
        variables: Added to the environment.
        patience_s: Longest wait for an answer.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        patience_s: float = 600.0,
    ) -> None:
        self._command = [*command]
        self._patience_s = patience_s
        self._variables = dict(variables or {})
        self.about: dict[str, str] = {}
        """Facts that it reports about itself, such as versions."""

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env={**os.environ, **self._variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self.about = {str(key): str(value) for key, value in self._answer().items()}
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def rate(self) -> float:
        """Measure once; return steps per second."""
        return self.measure().steps_per_s

    def measure(self, request: str = "measure") -> Timing:
        """Have the contestant measure once.

        Args:
            request: The line to send: what to measure, if there is a choice.

        Raises:
            ContestantError: It ended, or answered something else; shows the end of its errors.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended") from None
        answer = self._answer()
        try:
            return Timing.model_validate(answer)
        except ValidationError:
            raise self._failure(f"answered {answer!r:.200}") from None

    def close(self) -> None:
        """End the process; safe to repeat."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        deadline = threading.Timer(self._patience_s, self._process.kill)
        deadline.start()
        try:
            line = self._process.stdout.readline()
        finally:
            deadline.cancel()
            deadline.join()
        if not line:
            raise self._failure(f"ended, or did not answer within {self._patience_s:g} s")
        try:
            answer = json.loads(line)
        except ValueError:
            raise self._failure(f"said {line!r:.200}") from None
        if not isinstance(answer, dict):
            raise self._failure(f"said {line!r:.200}")
        return answer

    def _failure(self, what: str) -> ContestantError:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read()[-_TAIL_CHARS:]
        return ContestantError(f"{' '.join(self._command)} {what}; its error output:\n{errors}")
