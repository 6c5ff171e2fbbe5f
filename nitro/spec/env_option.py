"""`--env NAME[=VALUE]`: variables that a job sets for its environment."""

import os
from collections.abc import Sequence

from nitro.errors import CommandError


def own_variables(texts: Sequence[str]) -> dict[str, str]:
    """Return a job's fields by dotted path; a name alone takes its value from this process.

    Raises:
        CommandError: It has no value here.
    """
    found = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not given:
            here = os.environ.get(name)
            if here is None:
                raise CommandError(f"--env: {name} is not set here; give {name}=VALUE")
            value = here
        found[f"env_variables.{name}"] = value
    return found
