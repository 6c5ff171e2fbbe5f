"""Importing a Python file by its path, as multiprocessing's spawn does with the main script.

An environment may be written in the script that trains on it. Actors, and later commands, run that
script under the name `__mp_main__`. So what is behind `if __name__ == "__main__":` is left out. A
script without this line is run up to the call that trains.
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

_NAME = "__mp_main__"
_importing: ContextVar[bool] = ContextVar("importing", default=False)
_imported: dict[Path, ModuleType] = {}


class TrainingReachedError(BaseException):
    """The script that is imported trains at this place: what it defines before is what is wanted.

    No `Exception`, so that a script which catches those does not go on.
    """


def end_import() -> None:
    """End the import of a script, if this code runs in one: whatever trains calls it first.

    Raises:
        TrainingReachedError: A script is imported for what it defines.
    """
    if _importing.get():
        raise TrainingReachedError


@contextmanager
def importing() -> Iterator[None]:
    """Let nothing train that is imported in the body."""
    mark = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(mark)


def import_file(path: Path) -> ModuleType:
    """Return the module of a Python file; the script that runs is its own.

    Files beside it can be imported afterwards, as they can by a script.

    Raises:
        ImportError: There is no such file, or it ends the process that imports it.
        Exception: Whatever the file raises.
    """
    main = sys.modules["__main__"]
    if script_of(main) == path:
        return main
    if path not in _imported:
        _imported[path] = _run(path)
    return _imported[path]


def script_of(module: ModuleType) -> Path | None:
    """Return the file of a module that has one."""
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file and Path(file).is_file() else None


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module  # dataclasses, for one, look themselves up
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    arguments, sys.argv = sys.argv, [str(path)]
    try:
        with importing():
            spec.loader.exec_module(module)
    except TrainingReachedError:
        pass
    except SystemExit as error:
        raise ImportError(
            f"{path} ended with {error!r} when it was imported: put what it does, but for "
            "definitions, under `if __name__ == '__main__':`"
        ) from error
    finally:
        sys.argv = arguments
    return module
