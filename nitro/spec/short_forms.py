"""Short forms of fields, such as `fixed:8`, `8:64` and `64,64`, and `--env NAME[=VALUE]`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.spec.scaling_option import parse_scaling
from nitro.spec.spec_file import parse_actors

_SIZES = ("hyperparameters.hidden_sizes", "hyperparameters.value_hidden_sizes")


def written_out(fields: Mapping[str, JsonValue], runs_dir: Path) -> dict[str, JsonValue]:
    """Return values by dotted path, with short forms expanded.

    Args:
        fields: Values by dotted path.
        runs_dir: Folder in which to look up a scaling policy's run.

    Raises:
        CommandError: A short form is wrong.
    """
    found = dict(fields)
    scaling, actors, tags = (found.get(path) for path in ("scaling", "actors", "tags"))
    if isinstance(scaling, str):
        found["scaling"] = parse_scaling(scaling, runs_dir=runs_dir)
    if isinstance(actors, int | str):
        found["actors"] = parse_actors(str(actors))
    if isinstance(tags, str):
        found["tags"] = [tag.strip() for tag in tags.split(",")]
    for path in _SIZES:
        sizes = found.get(path)
        if isinstance(sizes, int | str):
            found[path] = parse_sizes(str(sizes), path)
    return found


def parse_sizes(text: str, path: str) -> list[JsonValue]:
    """Read the widths of layers.

    >>> parse_sizes("64,64", "hyperparameters.hidden_sizes")
    [64, 64]

    Raises:
        CommandError: They are not whole numbers.
    """
    try:
        return [int(size) for size in text.strip("[]() ").split(",") if size.strip()]
    except ValueError:
        raise CommandError(f"{path}: must look like 64,64, got {text!r}") from None


def own_variables(texts: Sequence[str]) -> dict[str, str]:
    """Return a job's variables by dotted path; a name alone takes its value from this process.

    Raises:
        CommandError: It has no value here.
    """
    found = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not given:
            here = os.environ.get(name)
            if here is None:
                raise CommandError(
                    f"--env: {name} is not set here; give {name}=VALUE. It sets a variable of the "
                    "simulator's; an environment to train in is named without an option"
                )
            value = here
        found[f"env_variables.{name}"] = value
    return found
