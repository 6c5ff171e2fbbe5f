"""The learner's side of the scaler's REST API.

Every call is idempotent. So a call whose answer was lost to a restart of the scaler or a broken
network is repeated until `patience_s` has passed.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Self, TypeVar

import httpx
from pydantic import ValidationError

from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.gradients import GradientGrant, GradientRequest
from shared.contracts.jobs import Job
from shared.contracts.learner_kind import MachineKind
from shared.contracts.leases import FinishRequest, Lease, LeaseRequest, LeaseState
from shared.contracts.message import Message
from shared.contracts.problem import Problem
from shared.contracts.rounds import RoundPlan, RoundRequest
from shared.service.http_client import http_client
from shared.service.tokens import token_headers

_LOG = logging.getLogger(__name__)
_RETRY_STATUS = frozenset({429, 502, 503, 504})
_ANSWER_S = 30.0
"""Longest wait for an answer."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
MAX_RETURNS = 10_000
"""Most reported training returns of one round; the scaler accepts a megabyte, some 50,000."""

M = TypeVar("M", bound=Message)


class ScalerError(RuntimeError):
    """The scaler refused a call or was unreachable for too long."""


class LeaseLostError(ScalerError):
    """Another learner holds the job, or it is gone: this learner must leave it."""


class ScalerClient:
    """Leases, rounds and the end of jobs, over HTTP.

    Args:
        url: The scaler's address.
        token: Its token; None if authentication is off.
        patience_s: How long calls to an unreachable scaler are retried.
        signature: Signs every request, if a proxy of the scaler requires it.
        on_try: Called for each attempt: None if the scaler answered, otherwise the reason.

    Raises:
        HttpSetupError: The address, or a variable of the environment, cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        patience_s: float,
        signature: httpx.Auth | None = None,
        on_try: Callable[[str | None], object] = lambda _: None,
    ) -> None:
        self._http = http_client(
            url,
            headers=token_headers(token, signed=signature is not None),
            auth=signature,
            timeout_s=_ANSWER_S,
        )
        self._on_try = on_try
        self._url = url
        self._patience_s = patience_s
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End calls that wait for a retry, and close the connections."""
        self._closed.set()
        self._http.close()

    def lease(
        self,
        learner_id: str,
        *,
        wait_s: float,
        kind: MachineKind | None = None,
        job_id: str | None = None,
        trouble: str | None = None,
    ) -> Lease | None:
        """Claim a job of a kind, or of any, within `wait_s` seconds; None without one.

        With a job's id, claim that job: one with a learner of this kind, or, without a kind, an
        external one. With trouble, claim none and say why.
        """
        body = LeaseRequest(
            learner_id=learner_id, kind=kind, job_id=job_id, wait_s=wait_s, trouble=trouble
        )
        response = self._call("POST", "/v1/leases", body, timeout_s=wait_s + 10)
        return None if response.status_code == httpx.codes.NO_CONTENT else _parse(Lease, response)

    def heartbeat(self, lease_id: str) -> LeaseState:
        """Keep a lease alive and learn whether the job should stop."""
        return _parse(LeaseState, self._call("PUT", f"/v1/leases/{lease_id}", None))

    def give_up(self, lease_id: str) -> None:
        """Return the job so that another learner can take it at once."""
        self._call("DELETE", f"/v1/leases/{lease_id}", None)

    def open_round(self, job_id: str, round_index: int, request: RoundRequest) -> RoundPlan:
        """Request a round: the one call per policy update."""
        path = f"/v1/jobs/{job_id}/rounds/{round_index}"
        return _parse(RoundPlan, self._call("POST", path, _sendable(request)))

    def preview_round(self, job_id: str, round_index: int, request: RoundRequest) -> RoundPlan:
        """Preview a round; nothing is launched."""
        path = f"/v1/jobs/{job_id}/rounds/{round_index}?plan_only=true"
        return _parse(RoundPlan, self._call("POST", path, _sendable(request)))

    def ask_gradients(
        self, job_id: str, round_index: int, request: GradientRequest
    ) -> GradientGrant:
        """Request gradients of a round's update from functions."""
        path = f"/v1/jobs/{job_id}/rounds/{round_index}/gradients"
        return _parse(GradientGrant, self._call("POST", path, request))

    def finish(self, job_id: str, request: FinishRequest) -> Job:
        """Report the end of a job, and return the job as it ended."""
        return _parse(Job, self._call("POST", f"/v1/jobs/{job_id}/finish", request))

    def job(self, job_id: str) -> Job:
        """Fetch a job.

        Raises:
            LeaseLostError: There is no such job.
        """
        return _parse(Job, self._call("GET", f"/v1/jobs/{job_id}", None))

    def cost(self, job_id: str) -> JobCost:
        """Fetch the job's bill with all its lines, page by page."""
        lines: tuple[LedgerLine, ...] = ()
        cursor: str | None = "0"
        while cursor is not None:
            path = f"/v1/jobs/{job_id}/cost?cursor={cursor}"
            page = _parse(JobCost, self._call("GET", path, None))
            lines, cursor = (*lines, *page.lines), page.next_cursor
        return page.model_copy(update={"lines": lines})

    def _call(
        self, method: str, path: str, body: Message | None, *, timeout_s: float = _ANSWER_S
    ) -> httpx.Response:
        content = None if body is None else body.model_dump_json().encode()
        give_up_at = time.monotonic() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                response = self._http.request(
                    method,
                    path,
                    content=content,
                    headers={"Content-Type": "application/json"},
                    timeout=timeout_s,
                )
                if response.status_code not in _RETRY_STATUS:
                    checked = _checked(response, f"{method} {path}")
                    self._on_try(None)
                    return checked
                trouble = f"status {response.status_code}"
            except httpx.RequestError as error:
                trouble = f"{type(error).__name__}: {error}"
            trouble = f"{trouble}; is NITRO_SCALER_URL right?"
            self._on_try(f"{self._url} does not answer: {trouble}")
            if time.monotonic() + pause_s > give_up_at or self._closed.wait(pause_s):
                raise ScalerError(
                    f"scaler at {self._url} did not answer {method} {path} within "
                    f"{self._patience_s:g} s (NITRO_SCALER_PATIENCE_S): {trouble}"
                )
            _LOG.info("scaler call failed, trying again", extra={"path": path, "why": trouble})
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _sendable(request: RoundRequest) -> RoundRequest:
    """Return a request within the scaler's limit: very many returns are sampled evenly.

    The scaler uses their mean; the run's record has them all.
    """
    previous = request.previous
    if previous is None or len(previous.episode_returns) <= MAX_RETURNS:
        return request
    every = -(-len(previous.episode_returns) // MAX_RETURNS)
    sample = previous.episode_returns[::every]
    thinned = previous.model_copy(update={"episode_returns": sample})
    return request.model_copy(update={"previous": thinned})


def _checked(response: httpx.Response, call: str) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = Problem.read(response.content)
        wrong = "; ".join(f"{error.field}: {error.message}" for error in problem.errors)
        detail = f"{problem.title}: {problem.detail}" + (f" ({wrong})" if wrong else "")
    except ValidationError:
        detail = f"status {response.status_code}"
    if response.status_code == httpx.codes.UNAUTHORIZED:
        detail = "the scaler does not accept the token: check NITRO_TOKEN or NITRO_TOKEN_FILE"
    lost = response.status_code in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND, httpx.codes.GONE)
    raise (LeaseLostError if lost else ScalerError)(f"{call}: {detail}")


def _parse(kind: type[M], response: httpx.Response) -> M:
    try:
        return kind.read(response.content)
    except ValidationError as error:
        raise ScalerError(
            f"{response.request.method} {response.request.url.path}: the scaler's answer is no "
            f"{kind.__name__}; are scaler and learner of one version? {error}"
        ) from error
