"""Import a Python file by its path, as multiprocessing's spawn imports the main script.

A training script may define its own environment. Actors, and later commands, run this script under
the name `__mp_main__`, which skips code under `if __name__ == "__main__":`. A script without this
line runs up to the call that trains.
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
    """An imported script reached its call that trains; its definitions above the call suffice.

    Not an `Exception`: a script that catches exceptions must not continue.
    """


def end_import() -> None:
    """End the import of a script, if one is under way; every function that trains calls this first.

    Raises:
        TrainingReachedError: A script is being imported for its definitions.
    """
    if _importing.get():
        raise TrainingReachedError


@contextmanager
def importing() -> Iterator[None]:
    """Keep code imported in the body from training."""
    mark = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(mark)


def import_file(path: Path) -> ModuleType:
    """Return the module of a Python file; for the running script, its main module.

    Files in the same folder can then be imported, as they can by a script.

    Raises:
        ImportError: There is no such file, or it exits the process.
        Exception: Any error that the file raises.
    """
    main = sys.modules["__main__"]
    if script_of(main) == path:
        return main
    if path not in _imported:
        _imported[path] = _run(path)
    return _imported[path]


def script_of(module: ModuleType) -> Path | None:
    """Return a module's file, or None if it has none."""
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file and Path(file).is_file() else None


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module  # dataclasses, among others, look up their own module
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
