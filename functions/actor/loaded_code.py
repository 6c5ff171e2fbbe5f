"""The loaded files of custom environments, and whether they have changed since.

A process outlives jobs. After an environment is fixed and its job resumed, actors must load the
fixed code. A running job is not disturbed: its actors keep their code.
"""

import contextlib
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path

_INSTALLED = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OURS = frozenset({"functions", "learning", "nitro", "services", "shared"})


class LoadedCode:
    """The files, with the time of their last change as they were loaded."""

    def __init__(self, packages: Iterable[str], *, began_ns: int) -> None:
        """Note the loaded files of these packages; without packages, do nothing.

        Args:
            packages: Their names.
            began_ns: Time (`time.time_ns`) before any of them was imported.
        """
        self._began_ns = began_ns
        self._tops = frozenset(name.partition(":")[0].partition(".")[0] for name in packages)
        self._changed_at: dict[str, int | None] = {}
        self.note()

    def has_changed(self) -> bool:
        """Whether a file has changed since it was noted."""
        return any(_changed_at(file) != then for file, then in self._changed_at.items())

    def note(self) -> None:
        """Note newly loaded files; after every task, because constructors import, too."""
        if not self._tops:
            return
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and file not in self._changed_at and self._is_own(name, file):
                changed_at = _changed_at(file)
                # A file written since the process began may have been loaded before the write.
                in_doubt = changed_at is not None and self._began_ns < changed_at <= time.time_ns()
                self._changed_at[file] = None if in_doubt else changed_at

    def _is_own(self, name: str, file: str) -> bool:
        top = name.partition(".")[0]
        return top in self._tops or not (top in _OURS or file.startswith(_INSTALLED))


def _changed_at(file: str) -> int | None:
    with contextlib.suppress(OSError):
        return Path(file).stat().st_mtime_ns
    return None
