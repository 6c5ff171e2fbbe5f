"""Files of this machine that environments are built from, such as a robot's XML.

A job has plain names alone, which no actor elsewhere could take for a path. Which file a name
stands for is said by whoever submits the job on the same machine, to its own actors.
"""

from pathlib import Path

_FILES: dict[str, Path] = {}


def know_file(name: str, path: str | Path) -> None:
    """Let a name stand for a file in what environments are built with from now on."""
    _FILES[name] = Path(path)


def known_file(name: object) -> Path | None:
    """Return the file that a name stands for."""
    return _FILES.get(name) if isinstance(name, str) else None
