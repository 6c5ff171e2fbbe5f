"""`--env NAME[=VALUE]`: variables that a job sets where its environment runs."""

import os
from collections.abc import Sequence

from nitro.errors import CommandError


def own_variables(texts: Sequence[str]) -> dict[str, str]:
    """Return a job's fields by dotted path; a name alone has the value that it has here.

    Raises:
        CommandError: It has none.
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
