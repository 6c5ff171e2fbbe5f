"""The REST API, version 1: every route a line or two over the part that does the work."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from services.scaler.api.problem import MEDIA_TYPE, problem_response, refuse_wrong
from services.scaler.jobs.rescaling import switch_scaling_policy
from services.scaler.rounds.service import Answer
from services.scaler.wiring import Components
from shared.contracts.billing import JobCost
from shared.contracts.field_errors import KEY_FORM, unknown
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobPage, JobStatus, ResumeRequest, ScalingRequest
from shared.contracts.leases import FinishRequest, Lease, LeaseRequest, LeaseState
from shared.contracts.message import Identifier, JobId
from shared.contracts.problem import FieldError, Problem
from shared.contracts.rounds import RoundPage, RoundPlan, RoundRequest
from shared.service.tokens import TOKEN_HEADER

JobPath = Annotated[JobId, Path(description="Id of a job, such as `hopper-v5-3f9a1c2b`.")]
LeasePath = Annotated[Identifier, Path(description="Id of a lease.")]
Cursor = Annotated[
    int | None, Query(ge=0, lt=2**63, description="`next_cursor` of the page before.")
]
RoundPath = Annotated[int, Path(ge=0, lt=2**31, description="A round of the job, counted from 0.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_FORM,
        description="The same key and body give the same job, however often they are sent.",
    ),
]
_TOKEN = Security(
    HTTPBearer(
        auto_error=False,
        description=f"Or, beside an AWS signature, in the header `{TOKEN_HEADER}`.",
    )
)
"""For the API's description alone: `services.scaler.api.guard` lets requests in."""
_PROBLEM = {"model": Problem, "content": {MEDIA_TYPE: {}}}


def _described(*statuses: int) -> dict[int | str, dict[str, object]]:
    return {status: {**_PROBLEM, "description": HTTPStatus(status).phrase} for status in statuses}


def _problems(*statuses: int) -> dict[int | str, dict[str, object]]:
    return _described(400, 401, 413, 422, 503, *statuses)


def _known_parameters(request: Request) -> None:
    """Refuse a query that the address does not have: whoever sends it expects an effect of it."""
    route = request.scope["route"]
    known = [parameter.alias for parameter in route.dependant.query_params]
    refuse_wrong(
        FieldError(field=name, message=unknown(name, known, kind="parameter"))
        for name in dict.fromkeys(request.query_params)
        if name not in known
    )


def router(parts: Components) -> APIRouter:
    """Return all routes, bound to their parts."""
    guarded = APIRouter(dependencies=[_TOKEN, Depends(_known_parameters)])
    _add_submit_route(guarded, parts)
    _add_job_routes(guarded, parts)
    _add_record_routes(guarded, parts)
    _add_lease_routes(guarded, parts)
    _add_round_routes(guarded, parts)
    _add_metrics_route(guarded, parts)
    routes = APIRouter()
    routes.include_router(guarded)
    _add_open_routes(routes, parts)
    return routes


def _add_submit_route(routes: APIRouter, parts: Components) -> None:
    @routes.post(
        "/v1/jobs",
        status_code=201,
        response_model=Job,
        responses={
            200: {"model": Job, "description": "Made before"},
            202: {"model": Job, "description": "Taken in; an actor describes its environment"},
            **_problems(502),
        },
        tags=["jobs"],
    )
    def create_job(spec: JobSpec, idempotency_key: IdempotencyKey = None) -> Response:
        """Queue a job; where its environment is not known yet, it is `checking` before that."""
        job, new = parts.jobs.create(spec, idempotency_key)
        taken_in = HTTPStatus.ACCEPTED if job.status == "checking" else HTTPStatus.CREATED
        return Response(
            job.model_dump_json(),
            status_code=taken_in if new else HTTPStatus.OK,
            media_type="application/json",
            headers={"Location": f"/v1/jobs/{job.job_id}"},
        )


def _add_job_routes(routes: APIRouter, parts: Components) -> None:
    @routes.get("/v1/jobs", responses=_problems(), tags=["jobs"])
    def list_jobs(
        status: JobStatus | None = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Cursor = None,
    ) -> JobPage:
        """List jobs, newest first."""
        page = parts.jobs.page(status=status, limit=limit, cursor=cursor)
        return page.model_copy(update={"jobs": tuple(map(parts.lost.shown, page.jobs))})

    @routes.get("/v1/jobs/{job_id}", responses=_problems(404), tags=["jobs"])
    def show_job(job_id: JobPath) -> Job:
        """Show one job."""
        return parts.lost.shown(parts.jobs.job(job_id))

    @routes.post("/v1/jobs/{job_id}/stop", status_code=202, responses=_problems(404), tags=["jobs"])
    def stop_job(job_id: JobPath) -> Job:
        """Ask a job to end after the update in hand; its checkpoint is kept."""
        return parts.jobs.stop(job_id)

    @routes.post(
        "/v1/jobs/{job_id}/resume", status_code=202, responses=_problems(404, 409), tags=["jobs"]
    )
    def resume_job(job_id: JobPath, request: ResumeRequest | None = None) -> Job:
        """Continue a job that was stopped, failed or made all its rounds."""
        return parts.jobs.resume(job_id, request or ResumeRequest())

    @routes.post(
        "/v1/jobs/{job_id}/scaling",
        status_code=202,
        responses=_problems(404, 409),
        tags=["jobs"],
    )
    def switch_scaling(job_id: JobPath, request: ScalingRequest) -> Job:
        """Decide a job's rounds by another policy, or pin a count, from the next round on."""
        return switch_scaling_policy(parts.store, job_id, request, now=parts.now())

    @routes.delete(
        "/v1/jobs/{job_id}", status_code=204, responses=_problems(404, 409), tags=["jobs"]
    )
    def delete_job(job_id: JobPath) -> None:
        """Forget a job that has ended, or is checked, and its artifacts."""
        parts.jobs.delete(job_id)


def _add_record_routes(routes: APIRouter, parts: Components) -> None:
    @routes.get("/v1/jobs/{job_id}/rounds", responses=_problems(404), tags=["jobs"])
    def list_rounds(
        job_id: JobPath,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Cursor = None,
    ) -> RoundPage:
        """List a job's rounds in order."""
        return parts.finishing.rounds(job_id, first=cursor or 0, limit=limit)

    @routes.get("/v1/jobs/{job_id}/cost", responses=_problems(404), tags=["jobs"])
    def show_cost(
        job_id: JobPath,
        limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
        cursor: Cursor = None,
    ) -> JobCost:
        """Show a job's bill so far, and a page of its lines; `limit=0` leaves them out."""
        return parts.finishing.cost(job_id, first=cursor or 0, limit=limit)


def _add_lease_routes(routes: APIRouter, parts: Components) -> None:
    @routes.post(
        "/v1/leases",
        response_model=Lease,
        responses={204: {"description": "No job is waiting"}, **_problems()},
        tags=["learner"],
    )
    async def claim(body: LeaseRequest, request: Request) -> Response:
        """Claim a job, waiting up to `wait_s` for one."""
        lease = await _claim(parts, body, request)
        if lease is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        parts.capacity.reconcile()
        return Response(lease.model_dump_json(), media_type="application/json")

    @routes.put("/v1/leases/{lease_id}", responses=_problems(404, 409), tags=["learner"])
    def heartbeat(lease_id: LeasePath) -> LeaseState:
        """Keep a lease alive."""
        return parts.leases.heartbeat(lease_id)

    @routes.delete(
        "/v1/leases/{lease_id}", status_code=204, responses=_problems(404), tags=["learner"]
    )
    def give_up(lease_id: LeasePath) -> None:
        """Hand a job back."""
        parts.leases.give_up(lease_id)
        parts.bell.ring()
        parts.capacity.reconcile()


async def _claim(parts: Components, body: LeaseRequest, request: Request) -> Lease | None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + body.wait_s
    while True:
        rung = parts.bell.listen()
        try:
            if await request.is_disconnected():
                return None
            lease = await run_in_threadpool(parts.leases.claim, body.learner_id)
            left_s = give_up_at - loop.time()
            if lease is not None or left_s <= 0 or parts.bell.closed:
                return lease
            # Nobody rings when a lease runs out.
            expiry_s = await run_in_threadpool(parts.leases.next_expiry_s)
            pause_s = left_s if expiry_s is None else min(left_s, expiry_s + 0.01)
            await _wait(rung, pause_s)
        finally:
            parts.bell.leave(rung)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return


class _AnswerThenLaunch(Response):
    """Sends a plan, then launches it: also when whoever asked has gone, since it is decided.

    Of one that was launched before, the actors that cannot answer any more are found.
    """

    def __init__(self, parts: Components, answer: Answer) -> None:
        super().__init__(answer.plan.model_dump_json(), media_type="application/json")
        self._parts = parts
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._answer.order is not None:
                await run_in_threadpool(self._parts.rounds.launch, self._answer.order)
            if self._answer.given_before is not None:
                self._parts.lost.watch(self._answer.given_before)


def _add_round_routes(routes: APIRouter, parts: Components) -> None:
    @routes.post(
        "/v1/jobs/{job_id}/rounds/{round_index}",
        response_model=RoundPlan,
        responses=_problems(404, 409),
        tags=["learner"],
    )
    def plan_round(
        job_id: JobPath,
        round_index: RoundPath,
        request: RoundRequest,
    ) -> Response:
        """Decide and launch a round; asked again, return the same plan and launch nothing."""
        return _AnswerThenLaunch(parts, parts.rounds.plan(job_id, round_index, request))

    @routes.post("/v1/jobs/{job_id}/finish", responses=_problems(404, 409), tags=["learner"])
    def finish(job_id: JobPath, request: FinishRequest) -> Job:
        """End a job."""
        return parts.finishing.finish(job_id, request)


def _add_open_routes(routes: APIRouter, parts: Components) -> None:
    @routes.get("/healthz", tags=["operator"])
    async def healthz() -> dict[Literal["status"], Literal["alive"]]:
        """Tell that the process answers."""
        return {"status": "alive"}

    @routes.get("/readyz", responses={503: _PROBLEM}, tags=["operator"])
    def readyz() -> Response:
        """Tell whether everything the scaler needs is there, and what is not as it should be."""
        missing = parts.readiness.missing()
        if not missing:
            degraded = parts.capacity.problems
            if not degraded:
                return JSONResponse({"status": "ready"})
            # Work goes on: actors start cold, or the learner comes at the next try.
            return JSONResponse({"status": "degraded", "degraded": degraded})
        errors = tuple(FieldError(field=name, message=why) for name, why in missing.items())
        return problem_response(
            HTTPStatus.SERVICE_UNAVAILABLE, f"missing: {', '.join(missing)}", errors
        )


def _add_metrics_route(routes: APIRouter, parts: Components) -> None:
    @routes.get("/metrics", response_class=Response, responses=_described(401), tags=["operator"])
    def metrics() -> Response:
        """Show Prometheus metrics."""
        return Response(parts.render_metrics(), media_type="text/plain; version=0.0.4")
