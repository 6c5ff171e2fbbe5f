"""Other packages that are called as Nitro's own are, and would be imported in their place.

Nitro is five packages side by side: `nitro`, and those below (decision 029). Where one of another
project comes first on `sys.path`, no import of ours would work, and none would say why.
"""

import importlib.util
import sys
from pathlib import Path
from types import TracebackType

_PACKAGES = ("functions", "learning", "services", "shared")
_HOME = Path(__file__).resolve().parents[1]
"""Folder that all of ours lie in."""


class ShadowedPackageError(ImportError):
    """Another package hides one of Nitro's; the message names it and the fix."""


def require_own_packages() -> None:
    """Make sure that Nitro's packages are found, and no others of their names.

    Raises:
        ShadowedPackageError: One is hidden. If nobody catches it, one line is shown, no traceback.
    """
    for name in _PACKAGES:
        found = _location(name)
        if found is not None and found != _HOME / name:
            if sys.excepthook is sys.__excepthook__:
                sys.excepthook = _one_line
            raise ShadowedPackageError(
                f"{found} hides Nitro's own package {name!r}: rename it, or take {found.parent} "
                "off the module path (start Python in another folder, or clear PYTHONPATH)",
                name=name,
                path=str(found),
            )


def _location(name: str) -> Path | None:
    """Return the folder, or the file, that a package of this name is imported from."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    place = next(iter(folders), None) if folders is not None else spec.origin
    return None if place is None else Path(place).resolve()


def _one_line(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Show an error as Python does, but this one as a line: a traceback would not help with it."""
    if isinstance(error, ShadowedPackageError):
        sys.stderr.write(f"{error}\n")
    else:
        sys.__excepthook__(kind, error, traceback)
