"""The base of every JSON message: frozen, closed to unknown fields, strict about numbers."""

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

JobId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""Names a job in URLs, cache keys and folders, so it can hold no separator of any of them."""

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
"""A name made by one of our own parts: a lease, a learner, a hyper-parameter."""

Count = Annotated[int, Field(strict=True, ge=0)]
PositiveInt = Annotated[int, Field(strict=True, ge=1)]
Number = Annotated[FiniteFloat, Field(strict=True)]
"""A finite number: no text that looks like one, no truth value."""
NonNegativeFloat = Annotated[Number, Field(ge=0)]
PositiveFloat = Annotated[Number, Field(gt=0)]
PositiveFloat32 = Annotated[PositiveFloat, Field(le=3e38)]
"""One that arrays of float32 can be compared with; larger ones are no numbers there."""


def plain(value: object) -> object:
    """Validate a free-form value before a union is tried, whose own errors name its members.

    Raises:
        ValueError: It is no truth value, finite number or Unicode text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be finite")
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must be true, false, a number or a text")
    if isinstance(value, str) and not value.isascii():
        value.encode()  # a lone surrogate could not be sent on; the error is a ValueError
    return value


class Message(BaseModel):
    """A value that crosses a process boundary as JSON; equal by value, never changed in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
