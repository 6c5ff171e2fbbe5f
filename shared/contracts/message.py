"""The base of every JSON message: frozen, strict about numbers, closed to unknown fields."""

import math
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationInfo

JOB_ID_FORM = r"^[a-z0-9][a-z0-9-]{0,62}$"
JobId = Annotated[str, Field(pattern=JOB_ID_FORM)]
"""Names a job in URLs, cache keys and folders, so it can hold no separator of any of them."""

IDENTIFIER_FORM = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER_FORM)]
"""A name made by one of our own parts: a lease, a learner, a hyper-parameter."""

Count = Annotated[int, Field(strict=True, ge=0)]
PositiveInt = Annotated[int, Field(strict=True, ge=1)]
Number = Annotated[FiniteFloat, Field(strict=True)]
"""A finite number: no text that looks like one, no truth value."""
NonNegativeFloat = Annotated[Number, Field(ge=0)]
PositiveFloat = Annotated[Number, Field(gt=0)]
NEW = "new"
"""The context in which values are validated that nobody has used yet. Without it they may be of a
job that was submitted before there was a rule, and must still be read."""
READ_BACK = "read back"
"""The context of `Message.read`, for validators that validate further messages themselves."""
_LARGEST_FLOAT32 = 3e38


def _float32(value: float, info: ValidationInfo) -> float:
    if info.context == NEW and value > _LARGEST_FLOAT32:
        raise ValueError(f"must be at most {_LARGEST_FLOAT32:g}: beyond, float32 has no numbers")
    return value


PositiveFloat32 = Annotated[PositiveFloat, AfterValidator(_float32)]
"""One that arrays of float32 can be compared with; larger ones are refused where they are new."""


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

    @classmethod
    def read(cls, data: str | bytes) -> Self:
        """Return a message that was stored, or answered, maybe by a newer version of Nitro.

        Fields that this version does not know are left out. A request that has any is refused
        instead: whoever sends it expects them to have an effect.

        Raises:
            pydantic.ValidationError: A field is missing, or its value is none it can have.
        """
        return cls.model_validate_json(data, extra="ignore", context=READ_BACK)
