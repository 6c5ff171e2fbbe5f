"""Errors of the API: RFC 9457 problem documents that name every wrong field."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from starlette.exceptions import HTTPException

from services.scaler.book.reading import UnreadableError
from services.scaler.book.table import StoreError
from services.scaler.refusals import ApiError, field_errors
from shared.artifacts.store import ArtifactError
from shared.contracts.field_errors import fields_of, known_fields
from shared.contracts.job_spec import JobSpec
from shared.contracts.problem import FieldError, Problem

MEDIA_TYPE = "application/problem+json"
_NOWHERE = "there is nothing at this address"


def problem_response(
    status: HTTPStatus, detail: str, errors: tuple[FieldError, ...] = ()
) -> JSONResponse:
    """Return an error as a response."""
    problem = Problem(title=status.phrase, status=status.value, detail=detail, errors=errors)
    return JSONResponse(problem.model_dump(), status_code=status.value, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""

    @app.exception_handler(ApiError)
    async def on_api_error(_: Request, error: ApiError) -> JSONResponse:
        return problem_response(error.status, error.detail, error.errors)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        if any(e["type"] == "json_invalid" for e in found):
            return problem_response(HTTPStatus.BAD_REQUEST, "the request body is no valid JSON")
        if any(e["loc"][0] == "path" for e in found):
            return problem_response(HTTPStatus.NOT_FOUND, _NOWHERE)
        # A body that is still bytes was not parsed as JSON.
        unread = isinstance(error.body, bytes)
        known = _known(request, error.body)
        errors = (_not_json(request),) if unread else field_errors(found, known=known)
        fields = ", ".join(e.field for e in errors)
        return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, f"wrong: {fields}", errors)

    @app.exception_handler(StoreError)
    @app.exception_handler(ArtifactError)
    async def on_storage(_: Request, error: Exception) -> JSONResponse:
        return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    @app.exception_handler(UnreadableError)
    async def on_unreadable(_: Request, error: Exception) -> JSONResponse:
        return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    @app.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> JSONResponse:
        return problem_response(
            HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}; see the scaler's log"
        )

    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(PydanticSerializationError, _on_unwritable)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = _allowed(request) or (error.headers or {}).get("Allow", "")
        detail = f"{request.method} is not allowed here; use {allowed}"
        response = problem_response(status, detail)
        response.headers["Allow"] = allowed
        return response
    detail = _NOWHERE if status is HTTPStatus.NOT_FOUND else str(error.detail)
    return problem_response(status, detail)


def _allowed(request: Request) -> str:
    """Return the methods of an API path; empty for any other path.

    Each method has a separate route, and the framework's error names only the first route's.
    """
    routes = (route for route in request.app.routes if isinstance(route, APIRoute))
    here = (route for route in routes if route.path_regex.match(request.url.path))
    return ", ".join(sorted({method for route in here for method in route.methods or ()}))


async def _on_unwritable(_: Request, error: Exception) -> JSONResponse:
    """Refuse lone surrogates: JSON can spell them, but nothing can store or send them."""
    if "surrogates not allowed" not in str(error):
        raise error
    return problem_response(
        HTTPStatus.UNPROCESSABLE_ENTITY, "the request holds text that is no valid Unicode"
    )


def _not_json(request: Request) -> FieldError:
    """Return the error of a body without a JSON content type, as sent by curl's `-d`."""
    sent = request.headers.get("content-type")
    got = f"got {sent!r:.80}" if sent else "got none"
    message = f"was not read as JSON: send Content-Type: application/json, {got}"
    return FieldError(field="body", message=message)


def _known(request: Request, body: object) -> list[str]:
    """Return the known fields of a request's body."""
    route = request.scope.get("route")
    wanted = route.body_field if isinstance(route, APIRoute) else None
    model = None if wanted is None else wanted.field_info.annotation
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return []
    if model is not JobSpec or not isinstance(body, dict):
        return [*fields_of(model)]
    scaling = body.get("scaling")
    policy = scaling.get("policy") if isinstance(scaling, dict) else JobSpec().scaling.policy
    return known_fields(algorithm=str(body.get("algorithm", "ppo")), policy=str(policy))
