"""Environments of the calling program: a class, a function, or a registration.

Actors are separate processes, and import such an environment by its name. They get the name from
the local system's settings, like NITRO_ENVIRONMENT_PACKAGES; a job never names anything to import.
"""

import importlib.util
import inspect
import sys
from ast import literal_eval
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nitro.errors import CommandError
from nitro.python.notebooks import found_modules, notebook_source
from shared.environments.packages import file_name, maker_of
from shared.environments.scripts import script_of

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

Maker = Callable[..., Any]
"""Returns a Gymnasium environment; takes a job's `env_kwargs`."""
_EXPECTED = {
    "env": "must be the name of a registered environment, or a function or class that makes one, "
    "got {}: give its arguments as env_kwargs={{...}}",
    "network": "must be a class or function that makes a torch module for an environment, got {}: "
    "give the class itself, which the learner calls in its own process",
}
"""By argument."""
WriteFile = Callable[[str, str], str]
"""Stores a Python source under the given stem, and returns the file's name for actors."""
_FILE = "a file of its own, such as my_env.py"
_KNOWN_EVERYWHERE = frozenset({"gymnasium", "ale_py", "shared"})
"""Top-level packages whose environments every actor knows."""


def maker_name(maker: Maker, write: WriteFile | None = None, *, argument: str = "env") -> str:
    """Return the import name of a function or class for actors: `module:name`, or `file.py:name`.

    Args:
        maker: The function or class.
        write: Stores a notebook's definitions in a file; None refuses them.
        argument: Its name in errors.

    Raises:
        CommandError: Actors could not import it; gives advice.
    """
    if not (inspect.isfunction(maker) or inspect.isclass(maker)):
        raise CommandError(f"{argument}: {_EXPECTED[argument].format(type(maker).__name__)}")
    module, name = maker.__module__, maker.__qualname__
    if not name.isidentifier():
        raise CommandError(
            f"{argument}: other processes cannot import {name}, because it is not at the top level "
            f"of a module: write a function or class there, in {_FILE}"
        )
    if getattr(importlib.import_module(module), name, None) is not maker:
        raise CommandError(
            f"{argument}: {module}.{name} now names another object, which other processes would "
            "import: give the function or class that the module has under this name"
        )
    if module != "__main__":
        return f"{module}:{name}"
    main = sys.modules[module]
    return _of_main(main, name) or _of_notebook(maker, write)


def registered_name(env_id: str, write: WriteFile) -> str | None:
    """Return the package that registers this process's environment in actors.

    None if they know it anyway, if it is unknown, or if its registration cannot be repeated in
    another process.

    Args:
        env_id: The environment's name.
        write: Keeps the registration in a file.
    """
    if maker_of(env_id) is not None:
        return maker_of(env_id)
    gymnasium = sys.modules.get("gymnasium")
    spec = None if gymnasium is None else gymnasium.registry.get(env_id)
    if spec is None:
        return None
    module, _, name = _entry_point(spec).partition(":")
    if not name or module.partition(".")[0] in _KNOWN_EVERYWHERE:
        return None
    if module == "__main__":
        script = script_of(sys.modules[module])
        return None if script is None else file_name(script)
    source = _registration(spec, f"{module}:{name}")
    return None if source is None else write("registered", source)


def _of_main(main: ModuleType, name: str) -> str | None:
    """Return the name of a definition in the running program; None in a notebook."""
    script = script_of(main)
    if main.__spec__ is not None:  # python -m package.module
        return f"{main.__spec__.name}:{name}"
    return None if script is None else file_name(script, name)


def _of_notebook(maker: Maker, write: WriteFile | None) -> str:
    source = None if write is None else notebook_source(maker)
    if write is None or source is None:
        name = maker.__name__
        raise CommandError(
            f"env: actors cannot import {name} from this notebook. Put the cell that defines it, "
            "with its imports, into a file, and import it from there:\n"
            f"  %%writefile my_env.py            # the first line of the cell with {name}\n"
            f"  from my_env import {name}        # a cell of its own\n"
            f"  nitro.train({name}, ...)"
        )
    return f"{write('notebook', source)}:{maker.__name__}"


def _entry_point(spec: "EnvSpec") -> str:
    """Return a registered environment's entry point as `module:name`; empty if unknown."""
    made_by = spec.entry_point
    if isinstance(made_by, str):
        return made_by
    module, name = getattr(made_by, "__module__", ""), getattr(made_by, "__qualname__", "")
    if module == "__main__":
        return f"{module}:{name}"
    found = getattr(sys.modules.get(module), name, None)
    return f"{module}:{name}" if found is made_by else ""


def _registration(spec: "EnvSpec", entry_point: str) -> str | None:
    """Return Python source that repeats a registration; None if its arguments cannot be written."""
    arguments = {
        "id": spec.id,
        "entry_point": entry_point,
        "reward_threshold": spec.reward_threshold,
        "nondeterministic": spec.nondeterministic,
        "max_episode_steps": spec.max_episode_steps,
        "order_enforce": spec.order_enforce,
        "kwargs": spec.kwargs,
    }
    try:
        plain = literal_eval(repr(arguments)) == arguments and not spec.additional_wrappers
    except (ValueError, SyntaxError):
        return None
    if not plain:
        return None
    return (
        f"{found_modules()}import gymnasium\n\n"
        f"if {spec.id!r} not in gymnasium.registry:\n"
        f"    gymnasium.register(**{arguments!r})\n"
    )
