"""A job's specification from a file, options and `--set path=value`, with errors for people."""

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from nitro.errors import CommandError
from shared.contracts.field_errors import explained, known_fields
from shared.contracts.job_spec import JobSpec
from shared.contracts.problem import FieldError
from shared.contracts.scaling_spec import (
    MAX_ACTORS,
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
    if isinstance(field.annotation, type)
    and issubclass(field.annotation, BaseModel)
    and field.annotation is not Policy  # that is set as a whole
)
"""Groups: a file that sets one field of a group keeps the others."""
_LONGEST_VALUE = 60
_PYTHON_NUMBER = re.compile(r"[+-]?[0-9_]*\.?[0-9][0-9_]*")
_YAML_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


def build_spec(
    *, file: Path | None, options: Mapping[str, JsonValue], base: JobSpec | None = None
) -> JobSpec:
    """Merge a specification; later sources win: base, file, options.

    Args:
        file: YAML or JSON file with any of JobSpec's fields.
        options: Values by dotted path, such as `stop.max_rounds`.
        base: Replaces the defaults.

    Raises:
        CommandError: The file or a field is wrong; one line each.
    """
    return validated(merged(file=file, options=options, base=base))


def merged(
    *, file: Path | None, options: Mapping[str, JsonValue], base: JobSpec | None = None
) -> JsonObject:
    """Merge a job's fields like `build_spec`, without validation.

    Raises:
        CommandError: The file cannot be read, or a path leads into a value.
    """
    raw: JsonObject = {} if base is None else base.model_dump(mode="json")
    for field, value in (read_spec(file) if file else {}).items():
        before = raw.get(field)
        if field in _GROUPS and isinstance(before, dict) and isinstance(value, dict):
            before.update(value)
        else:
            raw[field] = value
    for path in sorted(options, key=_depth):  # a group would replace its fields
        _assign(raw, path, options[path])
    return raw


def _depth(path: str) -> int:
    return path.count(".")


def says(raw: JsonObject, group: str, field: str) -> bool:
    """Return whether a job sets a field of a group, such as `stop`."""
    fields = raw.get(group)
    return isinstance(fields, dict) and field in fields


def says_range(raw: JsonObject) -> bool:
    """Return whether a job sets the number of actors, and not only their place."""
    actors = raw.get("actors", {})
    return not isinstance(actors, dict) or bool({"min", "max"} & actors.keys())


def validated(raw: JsonObject) -> JobSpec:
    """Return the validated job; its range of actors follows its scaling policy.

    Raises:
        CommandError: A field is wrong; one line each.
    """
    raw, scaling = {**raw}, raw.get("scaling")
    if isinstance(scaling, dict):
        raw["scaling"] = scaling = {"policy": NitroScaling().policy, **scaling}
        actors = raw.get("actors", {})
        if isinstance(actors, dict) and not says_range(raw):
            raw["actors"] = {**_range_for(scaling), **actors}
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as error:
        usual = JobSpec()
        policy = scaling.get("policy") if isinstance(scaling, dict) else usual.scaling.policy
        known = known_fields(
            algorithm=str(raw.get("algorithm", usual.algorithm)), policy=str(policy)
        )
        raise refusal(error, known=known) from error


def read_spec(file: Path) -> JsonObject:
    """Read a YAML or JSON mapping (JSON is YAML).

    Raises:
        CommandError: The file is unreadable or not a mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--spec {file}: cannot be read: {error}") from error
    try:
        loaded = _read_yaml(text)
    except ValueError as error:
        raise CommandError(f"--spec {file}: neither YAML nor JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise CommandError(f"--spec {file}: must be a mapping of job fields, such as `seed: 1`")
    try:
        plain: JsonObject = json.loads(json.dumps(loaded))
    except (TypeError, ValueError) as error:
        raise CommandError(f"--spec {file}: {error}; use plain numbers and texts") from error
    return plain


def _read_yaml(text: str) -> object:
    """Return the value of a YAML or JSON text.

    Raises:
        ValueError: It is neither.
    """
    import yaml  # takes a moment to load

    class Loader(yaml.SafeLoader):
        """YAML 1.2's numbers: in 1.1 `3e-4` is a text."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _YAML_FLOAT, [*"-+.0123456789"])
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error


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


def refusal(error: ValidationError, *, known: Sequence[str] = ()) -> CommandError:
    """Return a command's error, with one line for each wrong field."""
    wrong = field_errors(error, known=known)
    return CommandError("\n".join(f"{each.field}: {each.message}" for each in wrong))


def field_errors(
    error: ValidationError, *, prefix: str = "", known: Sequence[str] = ()
) -> list[FieldError]:
    """Return each wrong field with its value and, for an unknown name, the nearest known name."""
    found: list[FieldError] = []
    for details in error.errors(include_url=False):
        field = prefix + ".".join(map(str, details["loc"]))
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            found += field_errors(cause, prefix=f"{field}.", known=known)
        else:
            message = _message(details, field, known)
            found.append(FieldError(field=field or "job", message=message))
    return found


def _message(details: ErrorDetails, field: str, known: Sequence[str]) -> str:
    text = explained(details, field, known)
    value = repr(details["input"])
    said = details["type"] in ("missing", "value_error", "extra_forbidden")
    return text if said or len(value) > _LONGEST_VALUE else f"{text}, got {value}"


def assign_all(
    raw: JsonObject, assignments: Sequence[str], *, form: str = "path=value", within: str = ""
) -> None:
    """Set values from `path=value` texts; the prefix `within` is optional.

    Raises:
        CommandError: A text has another form, or part of its path is already a value.
    """
    for path, value in parsed_assignments(assignments, form=form).items():
        _assign(raw, path.removeprefix(within), value)


def parsed_assignments(
    assignments: Sequence[str], *, form: str = "path=value"
) -> dict[str, JsonValue]:
    """Return the values of `path=value` texts by path; of equal paths the last one counts.

    Raises:
        CommandError: A text has another form.
    """
    found: dict[str, JsonValue] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise CommandError(f"--set: must look like {form}, got {assignment!r}")
        found[path.strip()] = json_or_text(text)
    return found


def _assign(raw: JsonObject, path: str, value: JsonValue) -> None:
    *parents, last = path.split(".")
    node = raw
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise CommandError(f"{path}: {parent} is {child!r}, so nothing can be set inside it")
        node = child
    node[last] = value


def json_or_text(text: str) -> JsonValue:
    """Read JSON, a number as in Python, or a list or mapping in YAML; or return the text.

    >>> json_or_text("1e-4"), json_or_text("50_000"), json_or_text(".5"), json_or_text("True")
    (0.0001, 50000, 0.5, True)
    """
    if text in ("True", "False"):
        return text == "True"
    readers: list[Callable[[str], JsonValue]] = [json.loads]
    if _PYTHON_NUMBER.fullmatch(text):
        readers.append(float if "." in text else int)
    elif text.lstrip().startswith(("[", "{")):
        readers.append(lambda text: json.loads(json.dumps(_read_yaml(text))))
    for read in readers:
        with contextlib.suppress(TypeError, ValueError):
            return read(text)
    return text


def _range_for(scaling: JsonObject) -> JsonObject:
    """Return the default range of a job: that of its policy, or else the usual range."""
    try:
        policy = SCALING.validate_python(scaling)
    except ValidationError:
        return {}  # refused with the job
    if isinstance(policy, FixedScaling):
        return {"min": policy.num_actors, "max": policy.num_actors}
    if isinstance(policy, ScheduleScaling):
        return {"min": min(policy.num_actors), "max": max(policy.num_actors)}
    if isinstance(policy, RandomScaling) and policy.mean_actors is not None:
        # The usual range, widened if it is too narrow for draws around the mean.
        mean, usual = policy.mean_actors, ActorRange()
        widened = min(MAX_ACTORS, math.ceil(2 * mean) - usual.min)
        return {
            "min": usual.min if mean > usual.min else 1,
            "max": usual.max if mean < usual.max else widened,
        }
    return {}
