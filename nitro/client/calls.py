"""Calls of the REST API: requests and their retries, answers and their errors."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from typing import TypeVar

import httpx
from pydantic import ValidationError

from nitro.client.aws_signature import AwsSignature
from nitro.client.errors import ApiError, ApiUnreachableError, NoAnswerError
from nitro.errors import CommandError
from shared.contracts.message import Message
from shared.contracts.problem import Problem
from shared.contracts.views.files import ArtifactLink
from shared.service.http_client import HttpSetupError, http_client
from shared.service.tokens import token_headers

_CONNECT_PAUSES_S = (0.0, 0.5)
"""Delays between retries of a failed connection: nothing was sent, so nothing repeats."""
_MAX_DETAIL = 300
_FILE_TIMEOUT_S = 30.0

M = TypeVar("M", bound=Message)


class Calls:
    """Calls one API.

    Args:
        api_url: Its address.
        token: Its bearer token; None if authentication is off.
        timeout_s: Longest wait for an answer.
        sign_for: AWS region to sign every request for; None for unsigned requests.
        transport: Sends requests in place of its own connections.

    Raises:
        CommandError: Requests cannot be signed, or the environment names a proxy or certificates
            that cannot be used.
    """

    def __init__(
        self,
        api_url: str,
        token: str | None,
        *,
        timeout_s: float,
        sign_for: str | None,
        transport: httpx.BaseTransport | None,
    ) -> None:
        self._url = api_url.rstrip("/")
        auth = None if sign_for is None else AwsSignature(sign_for)
        try:
            self._http = http_client(
                self._url,
                headers=token_headers(token, signed=sign_for is not None),
                auth=auth,
                timeout_s=timeout_s,
                transport=transport,
            )
        except HttpSetupError as error:
            raise CommandError(str(error)) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def read(self, kind: type[M], path: str, **parameters: str | None) -> M:
        """Return the answer to a GET; parameters of None are left out."""
        return _read(kind, self.answer("GET", path, parameters=parameters))

    def write(
        self,
        kind: type[M],
        method: str,
        path: str,
        *,
        body: Message | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        """Return the answer to a call that changes something."""
        return _read(kind, self.answer(method, path, body=body, headers=headers))

    def answer(
        self,
        method: str,
        path: str,
        *,
        body: Message | None = None,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, str | None] | None = None,
    ) -> httpx.Response:
        """Return a successful response; parameters of None are left out.

        Raises:
            ApiError: The API refused.
            ApiUnreachableError: There was no answer, or nothing could be sent.
        """
        typed = {} if body is None else {"Content-Type": "application/json"}
        request = self._http.build_request(
            method,
            path,
            content=None if body is None else body.model_dump_json().encode(),
            params={name: value for name, value in (parameters or {}).items() if value is not None},
            headers={**typed, **(headers or {})},
        )
        try:
            response = self._sent(request)
        except httpx.LocalProtocolError:
            # Neither quoted nor chained: the error contains the bad header, token included.
            raise ApiUnreachableError(
                f"nothing was sent to {self._url}: the token or another header cannot be sent"
            ) from None
        except httpx.RequestError as error:
            raise NoAnswerError(
                f"no answer from {self._url} ({error or type(error).__name__}): "
                "is the API running, and is --api-url right?"
            ) from error
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            detail = f"{self._url} does not accept the token: check NITRO_TOKEN or NITRO_TOKEN_FILE"
            raise ApiError(
                Problem(title="Unauthorized", status=response.status_code, detail=detail)
            )
        if not response.is_success:
            raise ApiError(_problem(response))
        return response

    def download(self, link: ArtifactLink) -> Iterator[bytes]:
        """Yield a job's file in chunks, as it is now; only this API gets the token.

        The file may have changed since the listing, so its length comes from the answer.

        Raises:
            CommandError: The file is gone, truncated or unreachable, or the link leads elsewhere
                without saying so.
        """
        if not link.presigned and not link.url.startswith("/v1/jobs/"):
            # Any other address, even a full one, would receive the token.
            raise ApiUnreachableError(f"{link.name}: the API links to no file of a job")
        with ExitStack() as leaving:
            source = self._http
            try:
                if link.presigned:
                    # A link to a bucket must be fetched without the token.
                    bucket = http_client(link.url, timeout_s=_FILE_TIMEOUT_S)
                    source = leaving.enter_context(bucket)
                response = leaving.enter_context(source.stream("GET", link.url))
                if not response.is_success:
                    response.read()
                    raise ApiError(_problem(response))
                yield from response.iter_bytes()
            except (httpx.RequestError, httpx.InvalidURL, HttpSetupError) as error:
                raise NoAnswerError(f"{link.name}: cannot be fetched: {error}") from error

    def _sent(self, request: httpx.Request) -> httpx.Response:
        for pause_s in _CONNECT_PAUSES_S:
            try:
                return self._http.send(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                time.sleep(pause_s)
        return self._http.send(request)


def _read(kind: type[M], response: httpx.Response) -> M:
    try:
        return kind.read(response.content)
    except ValidationError as error:
        request = response.request
        raise ApiUnreachableError(
            f"{request.method} {request.url}: the answer is not a {kind.__name__}; is this a Nitro "
            "API of the same version as this command?"
        ) from error


def _problem(response: httpx.Response) -> Problem:
    """Read an error, whether it is our problem+json or a proxy's page."""
    try:
        return Problem.read(response.content)
    except ValidationError:
        return Problem(
            title=response.reason_phrase or "error",
            status=response.status_code,
            detail=f"{response.request.method} {response.request.url.path}: status "
            f"{response.status_code}: {json.dumps(response.text[:_MAX_DETAIL])}",
        )
