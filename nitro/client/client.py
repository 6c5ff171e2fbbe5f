"""A typed client of Nitro's REST API.

import nitro

with nitro.Client("https://nitro.example.com", token) as client:
    job = client.admitted(client.submit(nitro.JobSpec(env_id="Hopper-v5", seed=1)))
    print(client.get(job.job_id).progress)
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from typing import Self, TypeVar
from uuid import uuid4

import httpx
from pydantic import ValidationError

from nitro.client.aws_signature import AwsSignature
from nitro.client.errors import (
    AWAY,
    ApiError,
    ApiUnreachableError,
    NoAnswerError,
    require_admitted,
)
from nitro.client.looking import Looking, job_path
from nitro.errors import CommandError
from nitro.spec.spec_file import refusal
from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus, NoteRequest, ResumeRequest, ScalingRequest
from shared.contracts.message import Message
from shared.contracts.problem import Problem
from shared.contracts.rounds import RoundPage, RoundRecord
from shared.contracts.scaling_spec import Policy
from shared.contracts.views.files import ArtifactLink
from shared.contracts.views.jobs import JobList, JobSummary
from shared.service.http_client import HttpSetupError, http_client
from shared.service.tokens import token_headers

_KEY = re.compile(r"[\x21-\x7e]{1,128}")
"""The form of an idempotency key."""
_CONNECT_PAUSES_S = (0.0, 0.5)
"""Delays between retries of a failed connection: nothing was sent, so nothing repeats."""
_SUBMIT_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Delays between retries of a submission whose arrival is unknown."""
_MAX_DETAIL = 300
_FILE_TIMEOUT_S = 30.0

M = TypeVar("M", bound=Message)
P = TypeVar("P", JobList, RoundPage, JobCost)


class NitroClient(Looking):
    """Jobs over REST; a context manager that closes its connections."""

    def __init__(
        self,
        api_url: str,
        token: str | None,
        *,
        timeout_s: float = 30.0,
        sign_for: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect at the first call.

        Args:
            api_url: Address of the API, `https://host`.
            token: Its bearer token; None if authentication is off.
            timeout_s: Longest wait for an answer.
            sign_for: AWS region to sign every request for, with the default AWS credentials. An API
                with `endpoint: iam` requires it in addition to the token.
            transport: Sends requests in place of its own connections.

        Raises:
            CommandError: Requests cannot be signed, or the environment names a proxy or
                certificates that cannot be used.
        """
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(self, spec: JobSpec, *, idempotency_key: str | None = None) -> Job:
        """Submit a job; the same key with the same specification returns the same job.

        The client retries if the API is away or its answer is lost, always with the same key, so
        that only one job is created. The job may still be `checking`: an actor then describes its
        environment, and `admitted` waits until it is queued or refused.

        Args:
            spec: What to train.
            idempotency_key: Its key; a new one by default.

        Raises:
            CommandError: The key is malformed and nothing was sent, or the job was refused.
        """
        if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
            raise CommandError(
                f"--idempotency-key: must be 1 to 128 visible ASCII characters, got "
                f"{idempotency_key!r:.80}"
            )
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex}
        for pause_s in _SUBMIT_PAUSES_S:
            try:
                return self._call(Job, "POST", "/v1/jobs", body=spec, headers=headers)
            except ApiError as error:
                if error.problem.status not in AWAY:
                    raise
            except NoAnswerError:
                pass
            time.sleep(pause_s)
        return self._call(Job, "POST", "/v1/jobs", body=spec, headers=headers)

    def admitted(self, job: Job, *, every_s: float = 0.2) -> Job:
        """Wait until a job is checked; return it.

        Raises:
            JobRefusedError: It was refused; says why, field by field.
        """
        while job.status == "checking":
            time.sleep(every_s)
            job = self.get(job.job_id)
        require_admitted(job)
        return job

    def jobs(self, *, status: JobStatus | None = None, cursor: str | None = None) -> JobList:
        """Return one page of job summaries, newest first."""
        return self._call(JobList, "GET", "/v1/jobs", status=status, cursor=cursor)

    def every_job(self, *, status: JobStatus | None = None) -> Iterator[JobSummary]:
        """Yield all job summaries, newest first, page by page."""
        for page in _pages(lambda cursor: self.jobs(status=status, cursor=cursor)):
            yield from page.jobs

    def get(self, job_id: str) -> Job:
        """Return a job with its progress and cost."""
        return self._call(Job, "GET", job_path(job_id))

    def stop(self, job_id: str) -> Job:
        """Ask a job to stop after its current update; safe to repeat."""
        return self._call(Job, "POST", job_path(job_id, "stop"))

    def resume(
        self,
        job_id: str,
        *,
        budget_usd: float | None = None,
        max_rounds: int | None = None,
        max_env_steps: int | None = None,
        max_wall_s: float | None = None,
        from_scratch: bool = False,
        fresh_schedule: bool = False,
    ) -> Job:
        """Continue a job from its last checkpoint; limits can only rise.

        This continues stopped and failed jobs, and finished jobs with more rounds or
        steps. If a job's
        checkpoints are gone, `from_scratch` repeats all rounds. A decaying step size stays at its
        last value, unless `fresh_schedule` restarts the decay.

        Raises:
            CommandError: A limit is out of range; nothing was sent.
        """
        asked = {
            "budget_usd": budget_usd,
            "max_rounds": max_rounds,
            "max_env_steps": max_env_steps,
            "max_wall_s": max_wall_s,
            "from_scratch": from_scratch,
            "fresh_schedule": fresh_schedule,
        }
        try:
            body = ResumeRequest.model_validate(asked)
        except ValidationError as error:
            raise refusal(error) from error
        return self._call(Job, "POST", job_path(job_id, "resume"), body=body)

    def switch_scaling(self, job_id: str, scaling: Policy) -> Job:
        """Switch a job's scaling policy from the next round on; safe to repeat."""
        body = ScalingRequest(scaling=scaling)
        return self._call(Job, "POST", job_path(job_id, "scaling"), body=body)

    def rewrite_note(self, job_id: str, note: str) -> Job:
        """Replace a job's note; safe to repeat."""
        body = NoteRequest(note=note)
        return self._call(Job, "PUT", job_path(job_id, "note"), body=body)

    def delete(self, job_id: str) -> None:
        """Forget a finished job and its artifacts."""
        self._answer("DELETE", job_path(job_id))

    def rounds(self, job_id: str, *, cursor: str | None = None) -> RoundPage:
        """Return one page of a job's rounds, in order."""
        return self._call(RoundPage, "GET", job_path(job_id, "rounds"), cursor=cursor)

    def every_round(self, job_id: str) -> Iterator[RoundRecord]:
        """Yield all rounds of a job in order, page by page."""
        for page in _pages(lambda cursor: self.rounds(job_id, cursor=cursor)):
            yield from page.rounds

    def cost(self, job_id: str) -> JobCost:
        """Return a job's bill so far, without its lines."""
        return self._call(JobCost, "GET", job_path(job_id, "cost"), limit="0")

    def every_line(self, job_id: str) -> Iterator[LedgerLine]:
        """Yield all lines of a job's bill in order, page by page."""
        path = job_path(job_id, "cost")
        for page in _pages(lambda cursor: self._call(JobCost, "GET", path, cursor=cursor)):
            yield from page.lines

    def get_message(self, kind: type[M], path: str, **parameters: str | None) -> M:
        """Return the answer to a GET; parameters of None are left out."""
        return _read(kind, self._answer("GET", path, body=None, headers=None, **parameters))

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

    def _call(
        self,
        kind: type[M],
        method: str,
        path: str,
        *,
        body: Message | None = None,
        headers: Mapping[str, str] | None = None,
        **parameters: str | None,
    ) -> M:
        """Return the answer to a call; parameters of None are left out."""
        return _read(kind, self._answer(method, path, body=body, headers=headers, **parameters))

    def _answer(
        self,
        method: str,
        path: str,
        *,
        body: Message | None = None,
        headers: Mapping[str, str] | None = None,
        **parameters: str | None,
    ) -> httpx.Response:
        typed = {} if body is None else {"Content-Type": "application/json"}
        request = self._http.build_request(
            method,
            path,
            content=None if body is None else body.model_dump_json().encode(),
            params={name: value for name, value in parameters.items() if value is not None},
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


def _pages(fetch: Callable[[str | None], P]) -> Iterator[P]:
    """Yield pages from the first to the one that names no next."""
    page = fetch(None)
    yield page
    while page.next_cursor is not None:
        page = fetch(page.next_cursor)
        yield page


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
