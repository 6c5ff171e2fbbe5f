"""`nitro fields`: every field of a job, as named in `--spec` files, `--set` and the REST API.

All of it is read from the schema that the API publishes.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import FieldInfo
from rich.table import Table
from rich.text import Text

from nitro.errors import CommandError
from shared.contracts.familiar_names import familiar
from shared.contracts.field_errors import job_fields, known_fields, meaning_of
from shared.contracts.job_spec import JobSpec

_Schema = Mapping[str, Any]
_WITH_ANY_NAME = ("env_kwargs.", "env_variables.")
"""Groups whose fields only the environment knows."""
_SHOWN_ELSEWHERE = {
    "hyperparameters": "`nitro presets` lists them.",
    "scaling": "`nitro policies` lists their parameters.",
}


class FieldRow(BaseModel):
    """One field; these are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Dotted path, as for `--set`."""
    default: JsonValue
    allowed: str
    """Its allowed values, in words."""
    meaning: str


def field_rows(group: str | None = None) -> list[FieldRow]:
    """Describe a job's fields in order.

    Args:
        group: One field, or one group of fields; None for all.

    Raises:
        CommandError: There is no such field or group.
    """
    schema = JobSpec.model_json_schema()
    rows = list(_rows(schema, schema["$defs"], JobSpec().model_dump(mode="json"), prefix=""))
    wanted = [row for row in rows if group is None or f"{row.name}.".startswith(f"{group}.")]
    if not wanted:
        known = dict.fromkeys(row.name.split(".")[0] for row in rows)
        meant = meaning_of(str(group), known_fields(algorithm="", policy=""))
        hint = f"; {meant}" if meant else ""
        raise CommandError(f"GROUP: must be one of {', '.join(known)}, got {group!r}{hint}")
    return wanted


def field_named(name: str) -> str | None:
    """Return the dotted path of the field with this name; None for a whole group.

    Hyper-parameters and fields outside groups have their own names. Others need the group.

    >>> field_named("seed"), field_named("clip"), field_named("stop.max_rounds")
    ('seed', 'hyperparameters.clip', 'stop.max_rounds')
    """
    fields, theirs = job_fields(), familiar(name)
    path = name if name in fields or "." in name else f"hyperparameters.{name}"
    if theirs is not None and theirs.here != path:  # it means something else elsewhere
        return None
    is_named_here = path in fields and not _is_group(fields[path])
    return path if is_named_here or path.startswith(_WITH_ANY_NAME) else None


def option_field(option: str) -> tuple[str, str | None] | None:
    """Return the field that an option sets, and the value if the option is a flag.

    >>> option_field("--detector.num-samples"), option_field("--no-layer-norm")
    (('detector.num_samples', None), ('hyperparameters.layer_norm', 'false'))
    """
    name = option.lstrip("-").replace("-", "_")
    for prefix, value in (("", "true"), ("no_", "false")):
        path = field_named(name.removeprefix(prefix)) if name.startswith(prefix) else None
        is_flag = path in (fields := job_fields()) and _is_flag(fields[path])
        if path is not None and (is_flag or not prefix):
            return path, value if is_flag else None
    return None


def option_hint(option: str) -> str:
    """Suggest our options in place of an unknown one; empty if nothing is like it.

    >>> option_hint("--vf-coef"), option_hint("--every-rounds")
    ('; write --value-coefficient', '; write --detector.every-rounds or ...
    """
    name = option.lstrip("-").replace("-", "_")
    theirs = familiar(name)
    if theirs is not None and not theirs.is_field:
        return f"; {theirs.here}"
    found = _ending(name) if theirs is None else [theirs.here.removeprefix("hyperparameters.")]
    options = [f"--{path.replace('_', '-')}" for path in found]
    return f"; write {' or '.join(options)}" if options else ""


def _ending(name: str) -> list[str]:
    """Return the paths of all fields in groups whose last part is this name."""
    known = known_fields(algorithm="", policy="")
    return [path for path in known if path.endswith(f".{name}")]


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _is_flag(field: FieldInfo) -> bool:
    return bool in (field.annotation, *get_args(field.annotation))


def field_table(rows: list[FieldRow]) -> Table:
    """Format fields for people."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("field", style="bold", no_wrap=True)
    table.add_column("default", overflow="fold")
    table.add_column("", overflow="fold", ratio=1)
    for row in rows:
        default = row.default if isinstance(row.default, str) else json.dumps(row.default)
        table.add_row(
            row.name,
            Text("unset" if row.default is None else default),
            Text.assemble((row.allowed, "dim"), "\n", row.meaning),
        )
    return table


def _rows(
    schema: _Schema, definitions: _Schema, defaults: Mapping[str, JsonValue], *, prefix: str
) -> Iterator[FieldRow]:
    for name, field in schema["properties"].items():
        group, default = _group(field, definitions), defaults[name]
        if group is not None and default is None:  # the whole group is unset
            default = dict.fromkeys(group["properties"])
        if group is not None and isinstance(default, dict):
            yield from _rows(group, definitions, default, prefix=f"{prefix}{name}.")
            continue
        if "discriminator" in field and isinstance(default, dict):
            default = default[field["discriminator"]["propertyName"]]
        meaning = " ".join(field.get("description", "").split())
        elsewhere = _SHOWN_ELSEWHERE.get(name, "")
        yield FieldRow(
            name=f"{prefix}{name}",
            default=default,
            allowed=_allowed(field),
            meaning=f"{meaning} {elsewhere}".strip(),
        )


def _group(field: _Schema, definitions: _Schema) -> _Schema | None:
    """Return the fields of a group, which may be unset."""
    choices = (field, *field.get("anyOf", ()))
    named = next((choice["$ref"] for choice in choices if "$ref" in choice), None)
    return None if named is None else definitions[named.rpartition("/")[2]]


def _allowed(field: _Schema) -> str:
    if "discriminator" in field:
        return ", ".join(field["discriminator"]["mapping"])
    if "anyOf" in field:
        return ", or ".join(_allowed(choice) for choice in field["anyOf"])
    if "enum" in field:
        return ", ".join(field["enum"])
    kinds = {"null": "unset", "string": "text", "array": "list", "object": "names with values"}
    kind: str = field["type"]
    limits = [
        f"{word} {field[key]}"
        for key, word in (
            ("exclusiveMinimum", "above"),
            ("minimum", "from"),
            ("maximum", "to"),
        )
        if key in field
    ]
    return " ".join([kinds.get(kind, kind), *limits])
