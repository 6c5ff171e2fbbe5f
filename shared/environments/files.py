"""Local files that environments are built from, such as a robot's XML.

A job holds only plain names, which no actor elsewhere could mistake for a path. The process that
submits a job on the same machine maps names to files for its own actors.
"""

from pathlib import Path

_FILES: dict[str, Path] = {}


def know_file(name: str, path: str | Path) -> None:
    """Let a name in later environments' arguments stand for a file."""
    _FILES[name] = Path(path)


def known_file(name: object) -> Path | None:
    """Return the file that a name stands for."""
    return _FILES.get(name) if isinstance(name, str) else None
