"""The `PYTHONPATH` of the local system's processes."""

import os
import site
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

_PACKAGES = Path(__file__).resolve().parents[2]
"""Folder of our packages."""


def module_path(folders: Iterable[Path] = ()) -> str:
    """Return a PYTHONPATH: our packages, then this process's path, then these folders."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [_PACKAGES, *map(Path, inherited), *folders]
    return os.pathsep.join(dict.fromkeys(str(path.absolute()) for path in paths))


def folders_of(modules: Iterable[str]) -> tuple[Path, ...]:
    """Return the folders of imported modules, except for Python's default ones.

    A module may be next to the running script, where no other process would look.
    """
    everywhere = {*site.getsitepackages(), site.getusersitepackages()}
    tops = dict.fromkeys(name.partition(".")[0] for name in modules)
    folders = (_folder(sys.modules[top]) for top in tops)
    return tuple(folder for folder in folders if str(folder) not in everywhere)


def _folder(module: ModuleType) -> Path:
    place = next(iter(getattr(module, "__path__", ())), None) or module.__file__
    return Path(place or "").absolute().parent
