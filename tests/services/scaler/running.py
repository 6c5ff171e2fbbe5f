"""A running scaler as tests drive it, and the messages a learner would send it."""

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from services.scaler.api.connection import BoundedConnection
from services.scaler.app import create_app
from services.scaler.book.records import JobRecord
from services.scaler.settings import Settings
from services.scaler.wiring import Components
from shared.artifacts.store import CHECKPOINTS
from shared.contracts.billing import JobCost
from shared.contracts.jobs import Job
from shared.contracts.leases import FinishRequest, Lease
from shared.contracts.message import Message
from shared.contracts.problem import FieldError, Problem
from shared.contracts.rounds import (
    Curvature,
    RoundPage,
    RoundPlan,
    RoundRequest,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)
from tests.patience import ANSWER_S
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, serve

TOKEN = "a-token-for-tests"  # noqa: S105
T = TypeVar("T")


@dataclass
class Scaler:
    """A running scaler and a client of it."""

    http: httpx.Client
    parts: Components
    lambdas: LambdaEndpoint
    runs_dir: Path
    on_loop: "OnLoop"

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns on the scaler's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.on_loop.loop).result(ANSWER_S)

    def submit(self, **spec: object) -> Job:
        """Submit a job and wait until it is queued."""
        response = self.http.post("/v1/jobs", json=spec)
        assert response.status_code in (201, 202), response.text
        job = self.checked(Job.model_validate_json(response.content).job_id)
        assert job.environment is not None, job.error
        return job

    def refused(self, spec: object, *, status: int = 422) -> Problem:
        """Submit a job that is refused, at once or when it was checked; return why."""
        response = self.http.post("/v1/jobs", json=spec)
        if response.status_code != 202:
            assert response.status_code == status, response.text
            assert response.headers["content-type"] == "application/problem+json"
            return Problem.model_validate_json(response.content)
        job = self.checked(Job.model_validate_json(response.content).job_id)
        assert (job.status, job.environment) == ("failed", None)
        assert job.stop_reason == ("refused" if status == 422 else "error")
        why = job.error or ""
        named = re.findall(r"^([\w.]+): (.*(?:\n(?![\w.]+: ).*)*)", why, re.MULTILINE)
        errors = [FieldError(field=field, message=message) for field, message in named]
        return Problem(title="refused", status=status, detail=why, errors=tuple(errors))

    def checked(self, job_id: str) -> Job:
        """Wait until nobody checks a job any more."""
        deadline = time.monotonic() + ANSWER_S
        while (job := self.job(job_id)).status == "checking":
            assert time.monotonic() < deadline, "the job is still checked"
        return job

    def lease(self, *, wait_s: float = 0.0, learner_id: str | None = None) -> Lease:
        """Claim a job, as a learner of its own unless it is named."""
        learner_id = learner_id or f"learner-{uuid.uuid4()}"
        body = {"learner_id": learner_id, "wait_s": wait_s}
        response = self.http.post("/v1/leases", json=body)
        assert response.status_code == 200, response.text
        lease = Lease.model_validate_json(response.content)
        # As a learner leaves one after every round: without it no job is resumed.
        checkpoint = self.runs_dir / lease.job.job_id / CHECKPOINTS / "000001"
        checkpoint.mkdir(parents=True, exist_ok=True)
        return lease

    def begin(self, **spec: object) -> Lease:
        """Submit a job, and claim it."""
        self.submit(**spec)
        return self.lease()

    def resumed(self, job_id: str) -> Lease:
        """Resume a job, and claim it."""
        response = self.http.post(f"/v1/jobs/{job_id}/resume")
        assert response.status_code == 202, response.text
        return self.lease()

    def round_response(self, lease: Lease, index: int, **request: object) -> httpx.Response:
        body = RoundRequest.model_validate(
            {"lease_id": lease.lease_id, "policy_version": index, **request}
        )
        return self._post(f"/v1/jobs/{lease.job.job_id}/rounds/{index}", body)

    def round(self, lease: Lease, index: int, **request: object) -> RoundPlan:
        response = self.round_response(lease, index, **request)
        assert response.status_code == 200, response.text
        return RoundPlan.model_validate_json(response.content)

    def played(self, lease: Lease, index: int, **request: object) -> RoundPlan:
        """Return a round's plan once nothing of the job is in flight any more."""
        plan = self.round(lease, index, **request)
        self.landed(lease.job.job_id)
        return plan

    def finish(self, lease: Lease, **request: object) -> Job:
        fields = {"status": "succeeded", "stop_reason": "max_rounds", **request}
        body = FinishRequest.model_validate({"lease_id": lease.lease_id, **fields})
        response = self._post(f"/v1/jobs/{lease.job.job_id}/finish", body)
        assert response.status_code == 200, response.text
        return Job.model_validate_json(response.content)

    def job(self, job_id: str) -> Job:
        return Job.model_validate_json(self.http.get(f"/v1/jobs/{job_id}").content)

    def record(self, job_id: str) -> JobRecord:
        """What the store has of a job."""
        record = self.parts.book.job(job_id)
        assert record is not None
        return record

    def cost(self, job_id: str) -> JobCost:
        return JobCost.model_validate_json(self.http.get(f"/v1/jobs/{job_id}/cost").content)

    def rounds(self, job_id: str) -> RoundPage:
        return RoundPage.model_validate_json(self.http.get(f"/v1/jobs/{job_id}/rounds").content)

    def landed(self, job_id: str) -> None:
        """Wait until nothing of a job is in flight."""
        assert self.call(self.parts.launches.flights.wait_landed(job_id, timeout_s=10))

    def reconcile(self) -> None:
        """Have the scaler look at what is on."""
        self.on_loop.loop.call_soon_threadsafe(self.parts.capacity.reconcile)

    def _post(self, path: str, body: Message) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        return self.http.post(path, content=body.model_dump_json(), headers=headers)


class OnLoop:
    """An application that remembers the loop it runs on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.loop: asyncio.AbstractEventLoop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.loop = asyncio.get_running_loop()
        await self._app(scope, receive, send)


StartScaler = Callable[..., AbstractContextManager[Scaler]]


@contextmanager
def run_scaler(
    folder: Path,
    lambdas: LambdaEndpoint,
    cache: str,
    /,
    *,
    now: Callable[[], float] = time.time,
    **changes: object,
) -> Iterator[Scaler]:
    """Run a scaler with its files in a folder."""
    settings = Settings.model_validate(
        {
            "token": TOKEN,
            "database": folder / "nitro.sqlite3",
            "runs_dir": folder / "runs",
            "cache_url": cache,
            "lambda_endpoint_url": lambdas.url,
            "throttle_pause_s": 0.001,
            "throttled_s": 0.5,
            "finish_wait_s": 5.0,
            "readiness_every_s": 0.0,
            **changes,
        }
    )
    app = create_app(settings, now=now)
    on_loop = OnLoop(app)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        serve(on_loop, http=BoundedConnection) as url,
        # No certificates for plain HTTP: reading them takes as long as building the app.
        httpx.Client(base_url=url, headers=headers, timeout=30, verify=False) as http,
    ):
        yield Scaler(
            http=http,
            parts=app.state.parts,
            lambdas=lambdas,
            runs_dir=folder / "runs",
            on_loop=on_loop,
        )


def wrong_fields(response: httpx.Response) -> list[str]:
    """Names of the fields for which a request is refused."""
    assert response.status_code == 422, response.text
    return [error.field for error in Problem.model_validate_json(response.content).errors]


def curvature(lambda_max: float, lambda_min: float) -> Curvature:
    return Curvature(
        lambda_max=lambda_max,
        lambda_min=lambda_min,
        residual=0.001,
        matvecs=10,
        num_samples=512,
        elapsed_s=0.1,
    )


def result(round_index: int, *, env_steps: int = 100, **changes: object) -> RoundResult:
    counts = TrajectoryCounts(launched=2, used=2, late=0, duplicate=0, lost=0)
    timing = RoundTiming(
        plan_s=0.0,
        collect_s=0.2,
        update_s=0.3,
        curvature_s=0.1,
        evaluate_s=0.0,
        checkpoint_s=0.1,
        total_s=0.7,
    )
    return RoundResult.model_validate(
        {
            "round": round_index,
            "policy_version": round_index + 1,
            "trajectories": counts,
            "env_steps": env_steps,
            "episode_returns": (),
            "evaluation": None,
            "stats": {},
            "timing": timing,
            **changes,
        }
    )
