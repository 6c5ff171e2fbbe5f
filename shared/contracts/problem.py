"""Errors of the REST API, as RFC 9457 `application/problem+json`."""

from shared.contracts.message import Message


class FieldError(Message):
    """One wrong field of a request."""

    field: str
    """Dotted path, such as `actors.min`."""
    message: str


class Problem(Message):
    """An error, as RFC 9457 `application/problem+json`."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: tuple[FieldError, ...] = ()
