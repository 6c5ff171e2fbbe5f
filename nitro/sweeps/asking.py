"""Turns the options of `nitro sweep` into the fields of a sweep. Pure."""

import re
from collections.abc import Sequence

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.spec.spec_file import json_or_text
from nitro.spec.total_steps import parse_steps

_COMMA = re.compile(r",(?![^\[{]*[\]}])")
"""A comma outside lists."""


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


def parse_vary(text: str) -> tuple[str, list[JsonValue]]:
    """Parse `FIELD=a,b`; a comma inside a list does not separate values.

    >>> parse_vary("hyperparameters.hidden_sizes=[64,64],[256,256]")
    ('hyperparameters.hidden_sizes', [[64, 64], [256, 256]])

    Raises:
        CommandError: The text is malformed.
    """
    field, equals, values = text.partition("=")
    if not equals or not field.strip() or not values.strip():
        raise CommandError(f"--vary: must look like FIELD=a,b, got {text!r}")
    return field.strip(), [json_or_text(each.strip()) for each in _COMMA.split(values)]


def searched(ranges: Sequence[str], *, rungs: str | None, **options: JsonValue) -> JsonValue:
    """Return the fields of a search from its options; None without any.

    Raises:
        CommandError: An option is malformed.
    """
    fields: dict[str, JsonValue] = {}
    for text in ranges:
        field, bounds = parse_range(text)
        fields[field] = bounds
    given: dict[str, JsonValue] = {k: v for k, v in options.items() if v is not None}
    if rungs is not None:
        given["rungs"] = [parse_steps(each) for each in rungs.split(",")]
    if fields:
        given["fields"] = fields
    return given or None


def parse_range(text: str) -> tuple[str, dict[str, JsonValue]]:
    """Parse `FIELD=LOW:HIGH`, followed by `:log`, `:int` or both.

    >>> parse_range("hyperparameters.learning_rate=1e-4:1e-2:log")
    ('hyperparameters.learning_rate', {'low': 0.0001, 'high': 0.01, 'log': True, 'whole': False})

    Raises:
        CommandError: The text is malformed.
    """
    field, _, words = text.partition("=")
    low, _, rest = words.partition(":")
    high, *kinds = rest.split(":")
    try:
        bounds: dict[str, JsonValue] = {"low": float(low), "high": float(high)}
    except ValueError:
        bounds = {}
    if not bounds or not field or not {*kinds} <= {"log", "int"}:
        raise CommandError(
            f"--search: must look like FIELD=LOW:HIGH, FIELD=LOW:HIGH:log or "
            f"FIELD=LOW:HIGH:int, got {text!r}"
        )
    return field.strip(), {**bounds, "log": "log" in kinds, "whole": "int" in kinds}
