"""A typed client of Nitro's REST API.

import nitro

with nitro.Client("https://nitro.example.com", token) as client:
    job = client.admitted(client.submit(nitro.JobSpec(env_id="Hopper-v5", seed=1)))
    print(client.get(job.job_id).progress)
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import ValidationError

from nitro.client.calls import Calls
from nitro.client.errors import (
    AWAY,
    ApiError,
    NoAnswerError,
    require_admitted,
)
from nitro.errors import CommandError
from nitro.spec.spec_file import refusal
from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus, NoteRequest, ResumeRequest, ScalingRequest
from shared.contracts.rounds import RoundPage, RoundRecord
from shared.contracts.scaling_spec import Policy
from shared.contracts.views.curves import Curves
from shared.contracts.views.events import EventPage
from shared.contracts.views.files import ArtifactLink, ArtifactLinks, LogPage
from shared.contracts.views.jobs import JobList, JobSummary
from shared.contracts.views.system import Session

_KEY = re.compile(r"[\x21-\x7e]{1,128}")
"""The form of an idempotency key."""
_SUBMIT_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Delays between retries of a submission whose arrival is unknown."""

P = TypeVar("P", JobList, RoundPage, JobCost)


class NitroClient:
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
        self._calls = Calls(
            api_url, token, timeout_s=timeout_s, sign_for=sign_for, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

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
                return self._calls.write(Job, "POST", "/v1/jobs", body=spec, headers=headers)
            except ApiError as error:
                if error.problem.status not in AWAY:
                    raise
            except NoAnswerError:
                pass
            time.sleep(pause_s)
        return self._calls.write(Job, "POST", "/v1/jobs", body=spec, headers=headers)

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
        return self._calls.read(JobList, "/v1/jobs", status=status, cursor=cursor)

    def every_job(self, *, status: JobStatus | None = None) -> Iterator[JobSummary]:
        """Yield all job summaries, newest first, page by page."""
        for page in _pages(lambda cursor: self.jobs(status=status, cursor=cursor)):
            yield from page.jobs

    def get(self, job_id: str) -> Job:
        """Return a job with its progress and cost."""
        return self._calls.read(Job, _path(job_id))

    def stop(self, job_id: str) -> Job:
        """Ask a job to stop after its current update; safe to repeat."""
        return self._calls.write(Job, "POST", _path(job_id, "stop"))

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
        return self._calls.write(Job, "POST", _path(job_id, "resume"), body=body)

    def switch_scaling(self, job_id: str, scaling: Policy) -> Job:
        """Switch a job's scaling policy from the next round on; safe to repeat."""
        body = ScalingRequest(scaling=scaling)
        return self._calls.write(Job, "POST", _path(job_id, "scaling"), body=body)

    def rewrite_note(self, job_id: str, note: str) -> Job:
        """Replace a job's note; safe to repeat."""
        body = NoteRequest(note=note)
        return self._calls.write(Job, "PUT", _path(job_id, "note"), body=body)

    def delete(self, job_id: str) -> None:
        """Forget a finished job and its artifacts."""
        self._calls.answer("DELETE", _path(job_id))

    def rounds(self, job_id: str, *, cursor: str | None = None) -> RoundPage:
        """Return one page of a job's rounds, in order."""
        return self._calls.read(RoundPage, _path(job_id, "rounds"), cursor=cursor)

    def every_round(self, job_id: str) -> Iterator[RoundRecord]:
        """Yield all rounds of a job in order, page by page."""
        for page in _pages(lambda cursor: self.rounds(job_id, cursor=cursor)):
            yield from page.rounds

    def cost(self, job_id: str) -> JobCost:
        """Return a job's bill so far, without its lines."""
        return self._calls.read(JobCost, _path(job_id, "cost"), limit="0")

    def every_line(self, job_id: str) -> Iterator[LedgerLine]:
        """Yield all lines of a job's bill in order, page by page."""
        path = _path(job_id, "cost")
        for page in _pages(lambda cursor: self._calls.read(JobCost, path, cursor=cursor)):
            yield from page.lines

    def session(self) -> Session:
        """Return the token's role and its permissions."""
        return self._calls.read(Session, "/v1/session")

    def curves(self, job_id: str, *, after: int = -1) -> Curves:
        """Return a job's rounds after the given one as columns, one page."""
        return self._calls.read(Curves, _path(job_id, "curves"), after=str(after))

    def events(self, job_id: str, *, after: int = -1) -> EventPage:
        """Return a job's events after the given one."""
        return self._calls.read(EventPage, _path(job_id, "events"), after=str(after))

    def logs(self, job_id: str, *, source: str | None = None, limit: int = 200) -> LogPage:
        """Return the newest log lines that name a job."""
        path = _path(job_id, "logs")
        return self._calls.read(LogPage, path, source=source, limit=str(limit))

    def artifacts(self, job_id: str) -> ArtifactLinks:
        """Return links to all of a job's files, page by page."""
        path = _path(job_id, "artifacts")
        links = self._calls.read(ArtifactLinks, path)
        while links.truncated:
            page = self._calls.read(ArtifactLinks, path, after=links.files[-1].name)
            links = page.model_copy(update={"files": (*links.files, *page.files)})
        return links

    def download(self, link: ArtifactLink) -> Iterator[bytes]:
        """Yield a job's file in chunks; see `Calls.download`."""
        return self._calls.download(link)


def _path(job_id: str, *parts: str) -> str:
    """Return the address of a job, or of a part of it."""
    return "/".join(["/v1/jobs", quote(job_id, safe=""), *parts])


def _pages(fetch: Callable[[str | None], P]) -> Iterator[P]:
    """Yield pages from the first to the one that names no next."""
    page = fetch(None)
    yield page
    while page.next_cursor is not None:
        page = fetch(page.next_cursor)
        yield page
