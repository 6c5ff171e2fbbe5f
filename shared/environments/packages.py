"""Python packages of one's own that bring environments.

They are named in the settings of whoever builds environments, never in a job, and imported once
when the process starts. Importing one is what registers its environments with Gymnasium, and its
wrappers with `shared.environments.wrappers.register_wrapper`. With `module:maker`, a function or
class of that name, which makes an environment, is registered by Nitro.
"""

import importlib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", re.ASCII)


class EnvironmentPackageError(ImportError):
    """A package named in the settings cannot be imported."""


def package_names(text: str) -> tuple[str, ...]:
    """Return the names in a text with commas between them.

    Raises:
        ValueError: One is no name of a Python package.
    """
    names = tuple(name for name in re.split(r"[,\s]+", text) if name)
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r:.80} is no name of a Python package: expected names such as my_envs, "
                "with commas between them"
            )
    return names


PackageNames = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(lambda value: package_names(value) if isinstance(value, str) else value),
]
"""A settings field: `my_envs,more_envs:make_maze`."""


def maker_env_id(name: str) -> str:
    """Return the name by which a job calls the environment of a `module:maker`.

    >>> maker_env_id("mazes.small:make_maze")
    'own/mazes.small.make_maze'
    """
    return f"own/{name.replace(':', '.')}"


def import_environment_packages(names: Iterable[str]) -> None:
    """Import every package, so that its environments are registered; register every maker.

    Raises:
        EnvironmentPackageError: One cannot be imported; names it, the setting and the reason.
    """
    for name in names:
        module, _, maker = name.partition(":")
        try:
            imported = importlib.import_module(module)
            if maker:
                _register(name, getattr(imported, maker))
        except Exception as error:  # a package may raise anything while it is imported
            raise EnvironmentPackageError(
                f"the environment package {name!r} (NITRO_ENVIRONMENT_PACKAGES) cannot be "
                f"imported: {error!r}. Install it where environments run (pip install -e FOLDER), "
                "or take it off the list"
            ) from error


def _register(name: str, maker: object) -> None:
    import gymnasium  # takes a while to load, and most processes read names alone

    if not callable(maker):
        raise TypeError(f"{name} is no function or class")
    env_id = maker_env_id(name)
    if env_id not in gymnasium.registry:
        gymnasium.register(id=env_id, entry_point=name)
