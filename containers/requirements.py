"""Prints what one deployable needs, so that images install its extra before they copy its code.

Usage: python containers/requirements.py EXTRA
"""

import sys
import tomllib
from pathlib import Path
from typing import Any


def read_project(path: Path) -> dict[str, Any]:
    """Return the `[project]` table of a pyproject.toml."""
    with path.open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def requirements(project: dict[str, Any], extra: str) -> list[str]:
    """Return the requirements of a project and of one of its extras.

    Raises:
        ValueError: There is no such extra.
    """
    extras: dict[str, list[str]] = project["optional-dependencies"]
    if extra not in extras:
        raise ValueError(f"extra {extra!r} is unknown; known: {', '.join(sorted(extras))}")
    return [*project["dependencies"], *extras[extra]]


def main() -> int:
    """Print one requirement per line; return the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python containers/requirements.py EXTRA\n")
        return 2
    try:
        lines = requirements(read_project(Path("pyproject.toml")), sys.argv[1])
    except ValueError as error:
        sys.stderr.write(f"requirements.py: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
