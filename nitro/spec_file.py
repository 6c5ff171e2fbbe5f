"""A job's specification from a file, options and `--set path=value`, and what is wrong with it."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from nitro.errors import CommandError
from shared.hyperparameters import KINDS
from shared.job_spec import JobSpec
from shared.problem import FieldError
from shared.scaling_spec import (
    MAX_ACTORS,
    POLICIES,
    ActorRange,
    FixedScaling,
    NitroScaling,
    Policy,
    RandomScaling,
    Scaling,
    ScheduleScaling,
)

JsonObject = dict[str, JsonValue]

SCALING: TypeAdapter[Policy] = TypeAdapter(Scaling)
"""Reads any policy's parameters."""

_GROUPS = frozenset(
    name
    for name, field in JobSpec.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
)
"""Fields with fields of their own: a file that names one of those leaves the others as they are."""
_LONGEST_VALUE = 60
_YAML_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


def build_spec(
    *,
    file: Path | None,
    options: Mapping[str, JsonValue],
    assignments: Sequence[str],
    base: JobSpec | None = None,
) -> JobSpec:
    """Merge a specification; later sources win: base, file, then options, then `--set`.

    Args:
        file: YAML or JSON file with any of JobSpec's fields.
        options: Values by dotted path, such as `stop.max_rounds`.
        assignments: `path=value` texts; the value is JSON, or else a plain string.
        base: What holds where nothing else is said, in place of the defaults.

    Raises:
        CommandError: The file, an assignment or a field is wrong; one line each.
    """
    raw: JsonObject = {} if base is None else base.model_dump(mode="json")
    for field, value in (read_spec(file) if file else {}).items():
        before = raw.get(field)
        if field in _GROUPS and isinstance(before, dict) and isinstance(value, dict):
            before.update(value)
        else:
            raw[field] = value
    for path, value in options.items():
        assign(raw, path, value)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise CommandError(f"--set: must look like path=value, got {assignment!r}")
        assign(raw, path.strip(), json_or_text(text))
    scaling = raw.get("scaling")
    if isinstance(scaling, dict):
        scaling.setdefault("policy", NitroScaling().policy)
        raw.setdefault("actors", _range_for(scaling))
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as error:
        usual = JobSpec()
        policy = scaling.get("policy") if isinstance(scaling, dict) else usual.scaling.policy
        known = known_fields(
            algorithm=str(raw.get("algorithm", usual.algorithm)), policy=str(policy)
        )
        lines = [f"{wrong.field}: {wrong.message}" for wrong in field_errors(error, known=known)]
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
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandError(f"--spec {file}: neither YAML nor JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise CommandError(f"--spec {file}: must be a mapping of job fields, such as `seed: 1`")
    try:
        plain: JsonObject = json.loads(json.dumps(loaded))
    except (TypeError, ValueError) as error:
        raise CommandError(f"--spec {file}: {error}; use plain numbers and texts") from error
    return plain


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


def field_errors(
    error: ValidationError, *, prefix: str = "", known: Sequence[str] = ()
) -> list[FieldError]:
    """Return each wrong field with the value and, for an unknown name, the nearest known one."""
    found: list[FieldError] = []
    for details in error.errors(include_url=False):
        field = prefix + ".".join(
            str(part)
            for position, part in enumerate(details["loc"])
            if not (position < 2 and part in POLICIES)  # the tag of the union, not a field
        )
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            found += field_errors(cause, prefix=f"{field}.", known=known)
        else:
            message = _message(details, field, known)
            found.append(FieldError(field=field or "job", message=message))
    return found


def _message(details: ErrorDetails, field: str, known: Sequence[str]) -> str:
    if details["type"] == "extra_forbidden":
        around = [name for name in known if not field.startswith(f"{name}.")]
        near = get_close_matches(field, around, n=1)
        return "no such field" + (f"; did you mean {near[0]}?" if near else "")
    text = details["msg"].removeprefix("Value error, ")
    value = repr(details["input"])
    shows = details["type"] not in ("missing", "value_error") and len(value) <= _LONGEST_VALUE
    return f"{text}, got {value}" if shows else text


def known_fields(*, algorithm: str, policy: str) -> list[str]:
    """Return the dotted path of everything that a job of an algorithm and policy can set.

    Where one of them is none there is, everything that any of its kind has.
    """
    algorithms = [algorithm] if algorithm in KINDS else [*KINDS]
    policies = [policy] if policy in POLICIES else [*POLICIES]
    return sorted(
        {
            *_fields_of(JobSpec, ""),
            *(name for key in policies for name in _fields_of(POLICIES[key], "scaling.")),
            *(name for key in algorithms for name in _fields_of(KINDS[key], "hyperparameters.")),
        }
    )


def _fields_of(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields_of(kind, f"{prefix}{name}.")


def assign(raw: JsonObject, path: str, value: JsonValue) -> None:
    """Set a value by its dotted path.

    Raises:
        CommandError: A part of the path is a value already.
    """
    *parents, last = path.split(".")
    node = raw
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise CommandError(f"{path}: {parent} is {child!r}, so nothing can be set inside it")
        node = child
    node[last] = value


def json_or_text(text: str) -> JsonValue:
    """Read JSON, or else take the text for what it is."""
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value


def _range_for(scaling: JsonObject) -> JsonObject:
    """Return the range of a job that gives none: what its policy names, or else the usual one."""
    try:
        policy = SCALING.validate_python(scaling)
    except ValidationError:
        return {}  # refused with the job
    if isinstance(policy, FixedScaling):
        return {"min": policy.num_actors, "max": policy.num_actors}
    if isinstance(policy, ScheduleScaling):
        return {"min": min(policy.num_actors), "max": max(policy.num_actors)}
    if isinstance(policy, RandomScaling) and policy.mean_actors is not None:
        return _range_around(policy.mean_actors)
    return {}


def _range_around(mean: float) -> JsonObject:
    """Return the usual range, widened where it leaves draws around a mean no room."""
    usual = ActorRange()
    return {
        "min": usual.min if mean > usual.min else 1,
        "max": usual.max if mean < usual.max else min(MAX_ACTORS, math.ceil(2 * mean) - usual.min),
    }
