"""The user's own Python packages of environments.

The settings of each process that builds environments name them, never a job. The process imports
them once, when it starts. The import registers a package's environments with Gymnasium, and its
wrappers with `shared.environments.wrappers.register_wrapper`. For `module:maker`, Nitro registers
the function or class `maker`, which makes an environment. A module may also be named by its file:
`/path/to/maze.py` or `/path/to/maze.py:maker`.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from shared.environments.scripts import TrainingReachedError, import_file, importing
from shared.environments.told_errors import error_text
from shared.environments.variables import AT_IMPORT, noting_reads

_NAME = re.compile(r"([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|[^\s,:]+\.py)(:[A-Za-z_]\w*)?", re.ASCII)
_FILE_NAME = re.compile(r"(?P<file>.+\.py)(?P<maker>:[A-Za-z_]\w*)?", re.DOTALL)
_MAKERS: dict[str, str] = {}
_NOT_OF_IDS = re.compile(r"[^\w.-]+", re.ASCII)


class EnvironmentPackageError(ImportError):
    """A package named in the settings cannot be imported."""


def package_names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text.

    Raises:
        ValueError: An entry is not the name of a Python package.
    """
    names = tuple(name for name in re.split(r"[,\s]+", text) if name)
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r:.80} is no name of a Python package: expected names such as my_envs, "
                "or files such as my_envs.py, with commas between them"
            )
    return names


PackageNames = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(lambda value: package_names(value) if isinstance(value, str) else value),
]
"""A settings field: `my_envs,more_envs:make_maze`."""


def file_name(path: Path, maker: str = "") -> str:
    """Return the name of a Python file, or of a maker of environments in it.

    >>> file_name(Path("/my mazes/small.py"), "Maze")
    '/my%20mazes/small.py:Maze'
    """
    return quote(str(path)) + (f":{maker}" if maker else "")


def absolute_name(name: str) -> str:
    """Return a name that is also valid in a process started in another folder.

    >>> absolute_name("mazes.small:make_maze")
    'mazes.small:make_maze'
    """
    parts = _FILE_NAME.fullmatch(name)
    if parts is None:
        return name
    return file_name(Path(unquote(parts["file"])).resolve(), (parts["maker"] or "")[1:])


def maker_env_id(name: str) -> str:
    """Return a job's name for the environment of a `module:maker`.

    >>> maker_env_id("mazes.small:make_maze")
    'own/mazes.small.make_maze'
    >>> maker_env_id("/my%20mazes/small.py:Maze")
    'own/small.Maze'
    """
    module, _, maker = name.rpartition(":")
    if module.endswith(".py"):
        module = _NOT_OF_IDS.sub("-", Path(unquote(module)).stem)
    return f"own/{module}.{maker}"


def maker_of(env_id: str) -> str | None:
    """Return the `module:maker` that this process makes an environment with, if there is one."""
    return _MAKERS.get(env_id)


def imported_on_call(name: str) -> Callable[..., object]:
    """Return a function that calls a `module:maker`; its first call imports the module."""

    def make(*given: object) -> object:
        module, _, maker = name.partition(":")
        try:
            found = _maker(_imported(module), maker)
        except TrainingReachedError as error:
            raise ImportError(
                f"{name!r} trains when it is imported: put the call under "
                "`if __name__ == '__main__':`"
            ) from error
        if not callable(found):
            raise TypeError(f"{name} is no function or class")
        return found(*given)

    return make


def import_environment_packages(names: Iterable[str]) -> None:
    """Import every package, which registers its environments; register every maker.

    Raises:
        EnvironmentPackageError: A package cannot be imported; the message names it, the setting
            and the reason.
    """
    for name in names:
        module, _, maker = name.partition(":")
        try:
            with noting_reads(AT_IMPORT):
                imported = _imported(module)
            if maker:
                _register(name, _maker(imported, maker))
        except TrainingReachedError as error:
            raise EnvironmentPackageError(
                f"the environment package {name!r} trains when it is imported: put the call under "
                "`if __name__ == '__main__':`"
            ) from error
        except Exception as error:  # a package may raise anything while it is imported
            raise EnvironmentPackageError(
                f"the environment package {name!r} (NITRO_ENVIRONMENT_PACKAGES) cannot be "
                f"imported: {error_text(error)}. Install it where environments run (pip install -e "
                "FOLDER), or take it off the list"
            ) from error


def _imported(module: str) -> ModuleType:
    if module.endswith(".py"):
        return import_file(Path(unquote(module)))
    with importing():
        return importlib.import_module(module)


def _maker(module: ModuleType, name: str) -> object:
    if not hasattr(module, name):
        raise AttributeError(
            f"{module.__file__} defines no {name} at its top level, outside of "
            "`if __name__ == '__main__':` and above the first call that trains"
        )
    return getattr(module, name)


def _register(name: str, maker: object) -> None:
    import gymnasium  # takes a while to load, and most processes read names alone

    if not callable(maker):
        raise TypeError(f"{name} is no function or class")
    env_id = maker_env_id(name)
    _MAKERS[env_id] = name
    if ".py:" in name:  # Gymnasium could not import it by its name; a notebook may define it again
        gymnasium.registry.pop(env_id, None)
        gymnasium.register(id=env_id, entry_point=maker)
    elif env_id not in gymnasium.registry:
        gymnasium.register(id=env_id, entry_point=name)
