"""The base of every JSON message: frozen, closed to unknown fields, strict about whole numbers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

JobId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""Names a job in URLs, cache keys and folders, so it can hold no separator of any of them."""

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
"""A name made by one of our own parts: a lease, a learner, a hyper-parameter."""

Count = Annotated[int, Field(strict=True, ge=0)]
PositiveInt = Annotated[int, Field(strict=True, ge=1)]
NonNegativeFloat = Annotated[FiniteFloat, Field(ge=0)]
PositiveFloat = Annotated[FiniteFloat, Field(gt=0)]


class Message(BaseModel):
    """A value that crosses a process boundary as JSON; equal by value, never changed in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
