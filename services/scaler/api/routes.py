"""The REST API, version 1: every route is a line or two that calls the responsible part."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.routing import BaseRoute

from services.scaler.api.described import (
    PROBLEM,
    TOKEN,
    IdempotencyKey,
    JobPath,
    LeasePath,
    RoundPath,
    described,
    known_parameters,
    problems,
)
from services.scaler.api.problem import problem_response
from services.scaler.api.view_routes import add_view_routes
from services.scaler.jobs.rescaling import switch_scaling_policy
from services.scaler.wiring import Components
from shared.contracts.gradients import GradientGrant, GradientRequest
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, NoteRequest, ResumeRequest, ScalingRequest
from shared.contracts.leases import FinishRequest, Lease, LeaseRequest, LeaseState
from shared.contracts.problem import FieldError
from shared.contracts.rounds import RoundPlan, RoundRequest
from shared.contracts.views.files import JobEstimate


def api_routes(parts: Components) -> list[BaseRoute]:
    """Return all routes, bound to their parts.

    They are returned as a list: `include_router` would analyse each route again.
    """
    guarded = APIRouter(dependencies=[TOKEN, Depends(known_parameters)])
    _add_submit_route(guarded, parts)
    _add_job_routes(guarded, parts)
    add_view_routes(guarded, parts)
    _add_lease_routes(guarded, parts)
    _add_round_routes(guarded, parts)
    _add_metrics_route(guarded, parts)
    unguarded = APIRouter()
    _add_open_routes(unguarded, parts)
    return [*guarded.routes, *unguarded.routes]


def _add_submit_route(routes: APIRouter, parts: Components) -> None:
    @routes.post(
        "/v1/jobs",
        status_code=201,
        response_model=Job,
        responses={
            200: {
                "model": Job | JobEstimate,
                "description": "Created earlier; or the preview, with `validate_only`",
            },
            202: {"model": Job, "description": "Accepted; an actor describes its environment"},
            **problems(502),
        },
        tags=["jobs"],
    )
    async def create_job(
        spec: JobSpec,
        idempotency_key: IdempotencyKey = None,
        validate_only: Annotated[
            bool,
            Query(description="Create nothing: only return its cost or the reasons for a refusal."),
        ] = False,
    ) -> Response:
        """Queue a job; if its environment is unknown, it is `checking` first."""
        if validate_only:
            estimate = await parts.estimates.of(spec)
            return Response(estimate.model_dump_json(), media_type="application/json")
        job, new = await parts.jobs.create(spec, idempotency_key)
        taken_in = HTTPStatus.ACCEPTED if job.status == "checking" else HTTPStatus.CREATED
        return Response(
            job.model_dump_json(),
            status_code=taken_in if new else HTTPStatus.OK,
            media_type="application/json",
            headers={"Location": f"/v1/jobs/{job.job_id}"},
        )


def _add_job_routes(routes: APIRouter, parts: Components) -> None:
    @routes.post("/v1/jobs/{job_id}/stop", status_code=202, responses=problems(404), tags=["jobs"])
    async def stop_job(job_id: JobPath) -> Job:
        """Ask a job to stop after its current update; its checkpoint is kept."""
        return await parts.jobs.stop(job_id)

    @routes.post(
        "/v1/jobs/{job_id}/resume", status_code=202, responses=problems(404, 409), tags=["jobs"]
    )
    async def resume_job(job_id: JobPath, request: ResumeRequest | None = None) -> Job:
        """Continue a stopped, failed or finished job."""
        return await parts.jobs.resume(job_id, request or ResumeRequest())

    @routes.post(
        "/v1/jobs/{job_id}/scaling",
        status_code=202,
        responses=problems(404, 409),
        tags=["jobs"],
    )
    async def switch_scaling(job_id: JobPath, request: ScalingRequest) -> Job:
        """Switch a job's scaling policy, or pin a number, from the next round on."""
        return await switch_scaling_policy(parts.book, job_id, request, now=parts.now())

    @routes.put("/v1/jobs/{job_id}/note", responses=problems(404, 409), tags=["jobs"])
    async def rewrite_job_note(job_id: JobPath, request: NoteRequest) -> Job:
        """Replace a job's note, which has no effect."""
        return await parts.jobs.rewrite_note(job_id, request)

    @routes.delete(
        "/v1/jobs/{job_id}", status_code=204, responses=problems(404, 409), tags=["jobs"]
    )
    async def delete_job(job_id: JobPath) -> None:
        """Delete an ended or `checking` job and its artifacts."""
        await parts.jobs.delete(job_id)


def _add_lease_routes(routes: APIRouter, parts: Components) -> None:
    @routes.post(
        "/v1/leases",
        response_model=Lease,
        responses={204: {"description": "No job is waiting"}, **problems()},
        tags=["learner"],
    )
    async def claim(body: LeaseRequest, request: Request) -> Response:
        """Claim a job, waiting up to `wait_s` for one."""
        if body.job_id is None or body.kind is not None:
            parts.capacity.heard_from(body)
        lease = None if body.trouble else await _claim(parts, body, request)
        if lease is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Response(lease.model_dump_json(), media_type="application/json")

    @routes.put("/v1/leases/{lease_id}", responses=problems(404, 409), tags=["learner"])
    async def heartbeat(lease_id: LeasePath) -> LeaseState:
        """Keep a lease alive."""
        return await parts.leases.heartbeat(lease_id)

    @routes.delete(
        "/v1/leases/{lease_id}", status_code=204, responses=problems(404), tags=["learner"]
    )
    async def give_up(lease_id: LeasePath) -> None:
        """Return a job to the queue."""
        await parts.leases.give_up(lease_id)


async def _claim(parts: Components, body: LeaseRequest, request: Request) -> Lease | None:
    now, changed = asyncio.get_running_loop().time, parts.book.changed
    give_up_at = now() + body.wait_s
    while True:
        rung = changed.listen()
        if await request.is_disconnected():
            return None
        lease = await parts.leases.claim(body.learner_id, body.kind, body.job_id)
        left_s = give_up_at - now()
        if lease is not None or left_s <= 0 or changed.closed:
            return lease
        # No event announces an expired lease.
        expiry_s = parts.leases.next_expiry_s()
        await changed.heard(rung, left_s if expiry_s is None else min(left_s, expiry_s + 0.01))


def _add_round_routes(routes: APIRouter, parts: Components) -> None:
    @routes.post(
        "/v1/jobs/{job_id}/rounds/{round_index}",
        response_model=RoundPlan,
        responses=problems(404, 409),
        tags=["learner"],
    )
    async def plan_round(
        job_id: JobPath,
        round_index: RoundPath,
        request: RoundRequest,
        plan_only: Annotated[
            bool, Query(description="Only return the decision: write and launch nothing.")
        ] = False,
    ) -> Response:
        """Decide and launch a round; a repeat returns the same plan and launches nothing."""
        decide = parts.rounds.preview if plan_only else parts.rounds.plan
        plan = await decide(job_id, round_index, request)
        return Response(plan.model_dump_json(), media_type="application/json")

    @routes.post(
        "/v1/jobs/{job_id}/rounds/{round_index}/gradients",
        response_model=GradientGrant,
        responses=problems(404, 409),
        tags=["learner"],
    )
    async def compute_gradients(
        job_id: JobPath, round_index: RoundPath, request: GradientRequest
    ) -> Response:
        """Compute gradients on functions; a repeat launches nothing."""
        grant = await parts.gradients.ask(job_id, round_index, request)
        return Response(grant.model_dump_json(), media_type="application/json")

    @routes.post("/v1/jobs/{job_id}/finish", responses=problems(404, 409), tags=["learner"])
    async def finish(job_id: JobPath, request: FinishRequest) -> Job:
        """End a job."""
        return await parts.finishing.finish(job_id, request)


def _add_open_routes(routes: APIRouter, parts: Components) -> None:
    @routes.get("/healthz", tags=["operator"])
    async def healthz() -> dict[Literal["status"], Literal["alive"]]:
        """Show that the process answers."""
        return {"status": "alive"}

    @routes.get("/readyz", responses={503: PROBLEM}, tags=["operator"])
    async def readyz() -> Response:
        """Show whether all of the scaler's dependencies are available, and any degraded parts."""
        missing = await parts.readiness.missing()
        if not missing:
            degraded = parts.problems
            if not degraded:
                return JSONResponse({"status": "ready"})
            # Work continues: actors start cold, or the learner starts at the next retry.
            return JSONResponse({"status": "degraded", "degraded": degraded})
        errors = tuple(FieldError(field=name, message=why) for name, why in missing.items())
        return problem_response(
            HTTPStatus.SERVICE_UNAVAILABLE, f"missing: {', '.join(missing)}", errors
        )


def _add_metrics_route(routes: APIRouter, parts: Components) -> None:
    @routes.get("/metrics", response_class=Response, responses=described(401), tags=["operator"])
    async def metrics() -> Response:
        """Show Prometheus metrics."""
        return Response(parts.render_metrics(), media_type="text/plain; version=0.0.4")
