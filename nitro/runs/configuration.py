"""Requested values of runs, field by field, and their differences."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue

from nitro.spec.spec_file import JsonObject
from nitro.spec.train_spec import train_spec
from shared.contracts.going_on import resized
from shared.contracts.jobs import Job, resolve_for

_TOLD_APART = ("env_id", "algorithm", "preset", "seed")
"""Fields that every table shows."""
_LABELS = ("name", "tags")
"""Fields without effect on training: runs that differ in these alone share a configuration."""


class ChangedField(BaseModel):
    """A field with a value other than its default; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    field: str
    """Dotted path, as in `--set`."""
    value: JsonValue
    default: JsonValue
    """`nitro train`'s default for the same environment, algorithm and preset; null for none."""


class DifferentField(BaseModel):
    """A field in which runs differ; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    field: str
    values: list[JsonValue]
    """Value of each run, in order; null if it has no such field."""


def configuration(job: Job) -> JsonObject:
    """Return every field of a job by its dotted path, all hyper-parameters included."""
    try:
        full = job.hyperparameters.model_dump(mode="json")
    except ValueError:  # refused before its environment was known, or from another version
        full = dict(job.full_hyperparameters or job.spec.hyperparameters)
    fields = job.spec.model_dump(mode="json", exclude={*_LABELS})
    return dict(_flat({**fields, "hyperparameters": full}))


def changed_fields(job: Job) -> list[ChangedField]:
    """Return the fields of a job that differ from the defaults of `nitro train`."""
    said: JsonObject = {name: getattr(job.spec, name) for name in ("env_id", "algorithm", "preset")}
    plain = train_spec(options=said, here=not job.spec.stop.is_capped).resolved()
    if job.environment is not None:
        plain = resized(plain, job.environment)
    usual = plain.model_dump(mode="json")
    if job.environment is not None:
        usual["hyperparameters"] = resolve_for(plain, job.environment).model_dump(mode="json")
    known = dict(_flat(usual))
    return [
        ChangedField(field=field, value=value, default=known.get(field))
        for field, value in configuration(job).items()
        if field not in _TOLD_APART and value != known.get(field)
    ]


def different_fields(jobs: Sequence[Job]) -> list[DifferentField]:
    """Return the fields in which jobs differ, in the order of a job's fields."""
    each = [configuration(job) for job in jobs]
    found = {field: [fields.get(field) for fields in each] for fields in each for field in fields}
    return [
        DifferentField(field=field, values=values)
        for field, values in found.items()
        if any(value != values[0] for value in values)
    ]


def _flat(fields: Mapping[str, JsonValue], prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
