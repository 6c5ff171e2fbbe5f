"""Descriptions of routes: parameters, errors, the token."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Header, Path, Query, Request, Security
from fastapi.security import HTTPBearer

from services.scaler.api.problem import MEDIA_TYPE
from services.scaler.refusals import refuse_wrong
from shared.contracts.field_errors import KEY_FORM, unknown
from shared.contracts.message import Identifier, JobId
from shared.contracts.problem import FieldError, Problem
from shared.service.tokens import TOKEN_HEADER

JobPath = Annotated[JobId, Path(description="Id of a job, such as `hopper-v5-3f9a1c2b`.")]
LeasePath = Annotated[Identifier, Path(description="Id of a lease.")]
Cursor = Annotated[
    int | None, Query(ge=0, lt=2**63, description="`next_cursor` of the previous page.")
]
RoundPath = Annotated[int, Path(ge=0, lt=2**31, description="A round of the job, counted from 0.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_FORM,
        description="Repeating the same key and body returns the same job.",
    ),
]
TOKEN = Security(
    HTTPBearer(
        auto_error=False,
        description=f"Or, with an AWS signature, in the header `{TOKEN_HEADER}`.",
    )
)
"""Only for the API's description: `services.scaler.api.guard` checks requests."""
PROBLEM = {"model": Problem, "content": {MEDIA_TYPE: {}}}


def described(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return errors of a route by their status."""
    return {status: {**PROBLEM, "description": HTTPStatus(status).phrase} for status in statuses}


def problems(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return the errors of every guarded route, plus these."""
    return described(400, 401, 403, 413, 422, 503, *statuses)


async def known_parameters(request: Request) -> None:
    """Refuse unknown query parameters, because their sender expects an effect."""
    route = request.scope["route"]
    known = [parameter.alias for parameter in route.dependant.query_params]
    refuse_wrong(
        FieldError(field=name, message=unknown(name, known, kind="parameter"))
        for name in dict.fromkeys(request.query_params)
        if name not in known
    )
