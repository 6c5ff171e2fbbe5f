"""Turns the options of `nitro sweep` into the fields of a sweep. Pure."""

from collections.abc import Sequence

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.spec.spec_file import json_or_text
from nitro.sweeps.spec import parse_vary


def varied(texts: Sequence[str]) -> dict[str, JsonValue]:
    """Return the values of each `--vary` field.

    Raises:
        CommandError: A field is given twice, or a text is malformed.
    """
    found: dict[str, JsonValue] = {}
    for text in texts:
        field, values = parse_vary(text)
        if field in found:
            raise CommandError(f"--vary: {field} is given twice")
        found[field] = values
    return found


def job_fields(
    assignments: Sequence[str], *, algorithm: str | None, preset: str | None
) -> dict[str, JsonValue]:
    """Return the common fields of all jobs.

    Raises:
        CommandError: An assignment is malformed.
    """
    fields: dict[str, JsonValue] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise CommandError(f"--set: must look like path=value, got {text!r}")
        fields[path.strip()] = json_or_text(value)
    named: dict[str, JsonValue] = {"algorithm": algorithm, "preset": preset}
    return fields | {path: value for path, value in named.items() if value is not None}
