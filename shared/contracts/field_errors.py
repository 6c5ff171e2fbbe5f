"""Errors in a job's fields, in the user's terms."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shared.contracts.environment_ref import ENV_ID_FORM
from shared.contracts.familiar_names import familiar
from shared.contracts.job_spec import JobSpec
from shared.contracts.message import IDENTIFIER_FORM, JOB_ID_FORM
from shared.contracts.scaling_spec import POLICIES
from shared.hyperparameters.presets import ALGORITHMS

KEY_FORM = r"^[\x21-\x7e]{1,128}$"
"""The form of an idempotency key."""
_FORMS = {
    ENV_ID_FORM: (
        "must be a registered name, such as Hopper-v5 or ALE/Qbert-v5: letters, digits and "
        "_ . / - only, so no import path"
    ),
    IDENTIFIER_FORM: "must be at most 128 letters, digits and _ . - beginning with one of the two",
    JOB_ID_FORM: "must be the id of a job, such as hopper-v5-3f9a1c2b",
    KEY_FORM: "must be 1 to 128 visible ASCII characters",
}
"""Forms of texts in words, instead of regular expressions."""
_IMPORT_PATH = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z0-9][\w./-]*)", re.ASCII)
"""Gymnasium's form for an environment with the module that registers it."""


def first_reason(error: ValidationError) -> str:
    """Describe an error in a stored message in one line."""
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def unknown(name: str, known: Sequence[str], *, kind: str = "field") -> str:
    """Report an unknown name, with its equivalent or the nearest known name.

    >>> unknown("sede", ["seed", "stop"])
    'no such field; did you mean seed?'
    """
    if kind == "field" and (meant := meaning_of(name, known)):
        return f"no such {kind}; {meant}"
    around = [other for other in known if not name.startswith(f"{other}.")]
    group = name[: name.rfind(".") + 1]
    if not any(other.startswith(group) for other in around):
        group = ""
    # Without the group's name, which would make all fields of the group alike.
    named = {other.removeprefix(group): other for other in around if other.startswith(group)}
    near = get_close_matches(name.removeprefix(group), named, n=1)
    return f"no such {kind}" + (f"; did you mean {named[near[0]]}?" if near else "")


def meaning_of(name: str, known: Sequence[str]) -> str | None:
    """Explain a name of another library, or one of ours in another group or for other algorithms.

    >>> meaning_of("gamma", ["seed", "hyperparameters.discount"])
    'it is hyperparameters.discount here'
    >>> meaning_of("hyperparameters.n_epochs", ["seed", "hyperparameters.discount"])
    'num_epochs is for ppo, impact'
    """
    last = name.rpartition(".")[2]
    theirs = familiar(last)
    if theirs is not None and not theirs.is_field:
        return theirs.here
    named = [theirs.here] if theirs is not None and theirs.here in known else []
    same = [other for other in known if other.rpartition(".")[2] == last]
    ours = last if theirs is None else theirs.here.rpartition(".")[2]
    able = [key for key, traits in ALGORITHMS.items() if ours in traits.model.model_fields]
    if able and name.startswith("hyperparameters.") and not named:
        same = []
    if paths := named or same:
        return f"it is {' or '.join(paths)} here"
    return f"{ours} is for {', '.join(able)}" if able else None


def explained(details: Mapping[str, object], field: str, known: Sequence[str]) -> str:
    """Return one of pydantic's errors about a field in words; `known` has all paths."""
    if details["type"] == "extra_forbidden":
        return unknown(field, known)
    if details["type"] == "string_pattern_mismatch":
        context = details.get("ctx")
        form = context.get("pattern") if isinstance(context, Mapping) else None
        if form == ENV_ID_FORM and (import_path := _IMPORT_PATH.fullmatch(str(details["input"]))):
            module, name = import_path.groups()
            return (
                f"{details['input']} names a module as well: write {name} and add "
                f"--environment-package {module} (environment_packages in Python)"
            )
        return _FORMS.get(str(form), "has a form that is not allowed")
    return str(details["msg"]).removeprefix("Value error, ")


def known_fields(*, algorithm: str, policy: str) -> list[str]:
    """Return the dotted paths of all fields of a job with an algorithm and policy, sorted."""
    return sorted(job_fields(algorithm=algorithm, policy=policy))


def job_fields(*, algorithm: str = "", policy: str = "") -> dict[str, FieldInfo]:
    """Return all fields of a job with an algorithm and policy, by dotted path.

    An unknown algorithm or policy gives the fields of all of them.
    """
    algorithms = [algorithm] if algorithm in ALGORITHMS else [*ALGORITHMS]
    models = [ALGORITHMS[name].model for name in algorithms]
    policies = [policy] if policy in POLICIES else [*POLICIES]
    found = fields_of(JobSpec)
    for key in policies:
        found |= fields_of(POLICIES[key], "scaling.")
    for model in models:
        found |= fields_of(model, "hyperparameters.")
    return found


def fields_of(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Return every field by its dotted path, nested models' after their own."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        found[f"{prefix}{name}"] = field
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= fields_of(kind, f"{prefix}{name}.")
    return found
