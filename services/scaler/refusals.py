"""Expected refusals with their wrong fields; the API shows them as problems."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar

from pydantic import ValidationError

from shared.contracts.field_errors import explained
from shared.contracts.problem import FieldError

T = TypeVar("T")
_NAMED_FIELD = re.compile(r"^([a-z_][a-z0-9_.]*) \((.*?)\) ")
_MOST_EXPLAINED = 30
_FREE_FORM = frozenset({"hyperparameters", "env_kwargs"})
"""Union fields: in pydantic's paths the part below them names the tried type."""


class ApiError(Exception):
    """An expected refusal: status, message and wrong fields."""

    def __init__(
        self, status: HTTPStatus, detail: str, errors: tuple[FieldError, ...] = ()
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors


def found(what: T | None, kind: str, name: str) -> T:
    """Return the found value.

    Raises:
        ApiError: 404, there is none.
    """
    if what is None:
        raise ApiError(HTTPStatus.NOT_FOUND, f"there is no {kind} {name!r}")
    return what


def conflict(detail: str) -> ApiError:
    """Return a 409."""
    return ApiError(HTTPStatus.CONFLICT, detail)


def invalid(*errors: FieldError) -> ApiError:
    """Return a 422 about fields."""
    fields = ", ".join(error.field for error in errors)
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, f"wrong: {fields}", errors)


def refuse_wrong(errors: Iterable[FieldError]) -> None:
    """Raise a 422 about fields, if any is wrong."""
    wrong = tuple(errors)
    if wrong:
        raise invalid(*wrong)


def field_errors(
    errors: Sequence[Mapping[str, object]], *, known: Sequence[str] = ()
) -> tuple[FieldError, ...]:
    """Return one error per wrong field, from pydantic's; `known` has all fields.

    Only the first of thousands of wrong fields are explained: each takes a millisecond.
    """
    found: dict[str, str] = {}
    for error in errors[:_MOST_EXPLAINED]:
        for field, message in _one_error(error, known):
            found.setdefault(field, message)
    return tuple(FieldError(field=field, message=message) for field, message in found.items())


def _one_error(error: Mapping[str, object], known: Sequence[str]) -> list[tuple[str, str]]:
    location = error["loc"]
    assert isinstance(location, tuple)
    path = _field_path(location)
    message = explained(error, ".".join(path), known)
    context = error.get("ctx")
    cause = context.get("error") if isinstance(context, dict) else None
    if isinstance(cause, ValidationError):
        return [
            (field, explained(inner, field, known))
            for inner in cause.errors()[:_MOST_EXPLAINED]
            for field in (".".join([*path, *map(str, inner["loc"])]),)
        ]
    named = _NAMED_FIELD.match(message)
    if named and isinstance(cause, ValueError):
        path = [*path, named.group(1)]
        message = f"{named.group(2)} {message[named.end() :]}"
    return [(".".join(path) or "body", message)]


def _field_path(location: tuple[object, ...]) -> list[str]:
    """Return a dotted path's parts without pydantic's own names in it."""
    path = [str(part) for part in location[1:] if part != "[key]"]
    return path[:2] if path[:1] and path[0] in _FREE_FORM else path
