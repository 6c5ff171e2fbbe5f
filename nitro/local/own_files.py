"""Local files as an environment's arguments: `env_kwargs.xml_file=./my_robot.xml`."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from shared.environments.files import know_file, known_file


def named_files(kwargs: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return an environment's arguments with plain names in place of file paths.

    This process records the file behind each name.
    """
    return {name: _named(value) for name, value in kwargs.items()}


def files_source(spec: JobSpec) -> str | None:
    """Return Python code that registers a job's files in local actors; None without any."""
    files = {name: str(path) for name, path in _files(spec).values()}
    if not files:
        return None
    lines = (f"know_file({name!r}, {path!r})\n" for name, path in files.items())
    return "from shared.environments.files import know_file\n\n" + "".join(lines)


def require_no_files(spec: JobSpec) -> None:
    """Refuse a job with local files if its actors run elsewhere.

    Raises:
        CommandError: The job has local files; gives advice.
    """
    for field, (_, path) in _files(spec).items():
        raise CommandError(
            f"env_kwargs.{field}: {path} is a file of this machine, which the actors of an API do "
            "not have: put it into a package of your own that registers the environment with it, "
            "and that package into the actors' image (docs/environments.md)"
        )


def _files(spec: JobSpec) -> dict[str, tuple[str, Path]]:
    """Return name and path of each file argument."""
    found = {field: (str(value), known_file(value)) for field, value in spec.env_kwargs.items()}
    return {field: (name, path) for field, (name, path) in found.items() if path is not None}


def _named(value: JsonValue) -> JsonValue:
    if not isinstance(value, str) or not ("/" in value or value.startswith("~")):
        return value
    path = Path(value).expanduser().absolute()
    if not path.is_file():
        return value
    name = path.name
    if known_file(name) not in (None, path):
        name = f"{hashlib.sha256(str(path).encode()).hexdigest()[:8]}-{name}"
    know_file(name, path)
    return name
