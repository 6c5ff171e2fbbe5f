"""A record of invocations for tests of what calls the function: a line of JSON for each event.

It says what was asked and how it ended, and survives the emulator: lines are written at once.
"""

import json
import time
from pathlib import Path

from services.emulator.invocation import Invocation, Outcome


class Journal:
    """Appends to a file; without one it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("a", encoding="utf-8", buffering=1)

    def accepted(self, invocation: Invocation) -> None:
        """Note the event of an invocation that was accepted."""
        if self._file is not None:
            self._write(invocation, {"event": json.loads(invocation.payload)})

    def ended(self, invocation: Invocation, outcome: Outcome) -> None:
        """Note how an invocation ended: the type of its error, or null."""
        if self._file is not None:
            self._write(invocation, {"ended": outcome.error_type})

    def _write(self, invocation: Invocation, what: dict[str, object]) -> None:
        if self._file is not None:
            line = {"at": time.time(), "id": invocation.request_id, **what}
            self._file.write(json.dumps(line) + "\n")
