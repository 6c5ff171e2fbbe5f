"""Environments that are not registered: a function or a class that makes one.

Actors are processes of their own, and import it by its name. The name goes to them by the local
system's settings, as NITRO_ENVIRONMENT_PACKAGES does; a job never names anything to import.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from nitro.errors import CommandError

Maker = Callable[..., Any]
"""Returns a Gymnasium environment; takes a job's `env_kwargs`."""
_FILE = "a file of its own, such as my_env.py"


def maker_name(maker: Maker) -> str:
    """Return the name that actors import a function or class by: `module:name`.

    Raises:
        CommandError: They could not; says what to do.
    """
    if not (inspect.isfunction(maker) or inspect.isclass(maker)):
        raise CommandError(
            "env: must be the name of a registered environment, or a function or class that makes "
            f"one, got {type(maker).__name__}: give its arguments as env_kwargs={{...}}"
        )
    module, name = maker.__module__, maker.__qualname__
    if not name.isidentifier():
        raise CommandError(
            f"env: actors cannot import {name}, as it is no name at the top level of a module: "
            f"write a function or class there, in {_FILE}"
        )
    if module == "__main__":
        raise CommandError(
            f"env: actors cannot import {name} from the script or notebook that runs: put it into "
            f"{_FILE}, and `from my_env import {name}`"
        )
    if getattr(importlib.import_module(module), name, None) is not maker:
        raise CommandError(
            f"env: {module}.{name} is another object by now, which actors would import: give the "
            "function or class that the module has under this name"
        )
    return f"{module}:{name}"
