"""A job's specification from a file, options and `--set path=value`, and what is wrong with it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from nitro.errors import CommandError
from shared.hyperparameters import PRESETS, resolve
from shared.job_spec import ActorRange, FixedScaling, JobSpec, NitroScaling
from shared.problem import FieldError

JsonObject = dict[str, JsonValue]

_SCALINGS = ("nitro", "fixed")
_LONGEST_VALUE = 60
_YAML_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


def build_spec(
    *, file: Path | None, options: Mapping[str, JsonValue], assignments: Sequence[str]
) -> JobSpec:
    """Merge a specification; later sources win: file, then options, then `--set`.

    Args:
        file: YAML or JSON file with any of JobSpec's fields.
        options: Values by dotted path, such as `stop.max_rounds`.
        assignments: `path=value` texts; the value is JSON, or else a plain string.

    Raises:
        CommandError: The file, an assignment or a field is wrong; one line each.
    """
    raw: JsonObject = read_spec(file) if file else {}
    for path, value in options.items():
        _assign(raw, path, value)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise CommandError(f"--set: must look like path=value, got {assignment!r}")
        _assign(raw, path.strip(), _json_or_text(text))
    scaling = raw.get("scaling")
    if isinstance(scaling, dict):
        scaling.setdefault("policy", NitroScaling().policy)
        raw.setdefault("actors", _range_of_fixed(scaling))
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as error:
        lines = [f"{wrong.field}: {wrong.message}" for wrong in field_errors(error)]
        raise CommandError("\n".join(lines)) from error


def read_spec(file: Path) -> JsonObject:
    """Read a YAML or JSON mapping (JSON is YAML).

    Raises:
        CommandError: The file cannot be read or holds something else.
    """
    import yaml  # only --spec needs it

    class Loader(yaml.SafeLoader):
        """YAML 1.2's numbers: in 1.1 `3e-4` is a text."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _YAML_FLOAT, [*"-+.0123456789"])
    try:
        loaded: object = yaml.load(file.read_text(encoding="utf-8"), Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--spec {file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise CommandError(f"--spec {file}: neither YAML nor JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise CommandError(f"--spec {file}: must be a mapping of job fields, such as `seed: 1`")
    try:
        plain: JsonObject = json.loads(json.dumps(loaded))
    except (TypeError, ValueError) as error:
        raise CommandError(f"--spec {file}: {error}; use plain numbers and texts") from error
    return plain


def described(spec: JobSpec) -> str:
    """Return the whole specification as JSON, with every hyper-parameter resolved."""
    full = spec.model_dump(mode="json")
    values = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    full["hyperparameters"] = values.model_dump(mode="json")
    return json.dumps(full, indent=2)


def parse_actors(text: str) -> JsonObject:
    """Read `MIN:MAX`, or `N` for both.

    Raises:
        CommandError: It is neither.
    """
    low, _, high = text.partition(":")
    try:
        return {"min": int(low), "max": int(high or low)}
    except ValueError:
        raise CommandError(
            f"--actors: must be MIN:MAX, such as 8:64, or one number, got {text!r}"
        ) from None


def parse_scaling(text: str) -> JsonObject:
    """Read `nitro`, `fixed` or `fixed:N`.

    Raises:
        CommandError: It is none of them.
    """
    policy, colon, number = text.partition(":")
    if policy in _SCALINGS and not colon:
        return {"policy": policy}
    if policy == "fixed" and number.isascii() and number.isdecimal():
        return {"policy": policy, "num_actors": int(number)}
    raise CommandError(f"--scaling: must be nitro or fixed:N, such as fixed:16, got {text!r}")


def field_errors(error: ValidationError, *, prefix: str = "") -> list[FieldError]:
    """Return each wrong field with the value and, for an unknown name, the nearest known one."""
    found: list[FieldError] = []
    for details in error.errors(include_url=False):
        field = prefix + ".".join(
            str(part)
            for position, part in enumerate(details["loc"])
            if not (position == 1 and part in _SCALINGS)  # the tag of the union, not a field
        )
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            found += field_errors(cause, prefix=f"{field}.")
        else:
            found.append(FieldError(field=field or "job", message=_message(details, field)))
    return found


def _message(details: ErrorDetails, field: str) -> str:
    if details["type"] == "extra_forbidden":
        near = get_close_matches(field, known_fields(), n=1)
        return "no such field" + (f"; did you mean {near[0]}?" if near else "")
    text = details["msg"].removeprefix("Value error, ")
    value = repr(details["input"])
    shows = details["type"] not in ("missing", "value_error") and len(value) <= _LONGEST_VALUE
    return f"{text}, got {value}" if shows else text


def known_fields() -> list[str]:
    """Return the dotted path of everything a job can set."""
    return sorted(
        {
            *_fields_of(JobSpec, ""),
            *_fields_of(NitroScaling, "scaling."),
            *_fields_of(FixedScaling, "scaling."),
            *(
                name
                for values in PRESETS.values()
                for name in _fields_of(type(values), "hyperparameters.")
            ),
        }
    )


def _fields_of(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields_of(kind, f"{prefix}{name}.")


def _assign(raw: JsonObject, path: str, value: JsonValue) -> None:
    *parents, last = path.split(".")
    node = raw
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise CommandError(f"{path}: {parent} is {child!r}, so nothing can be set inside it")
        node = child
    node[last] = value


def _json_or_text(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value


def _range_of_fixed(scaling: JsonObject) -> JsonObject:
    """Return the usual range, widened for the number of actors that `fixed` names."""
    default = ActorRange()
    number = scaling.get("num_actors")
    if not isinstance(number, int):
        return {}
    return {"min": min(number, default.min), "max": max(number, default.max)}
