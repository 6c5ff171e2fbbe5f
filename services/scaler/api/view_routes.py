"""Read-only routes. Each answer has an `ETag`; a client that already has it gets a 304.

Plain functions run on a few threads: a thousand rounds take too long to render on the loop.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from services.scaler.api.answers import file_answer, tagged
from services.scaler.api.described import Cursor, JobPath, problems
from services.scaler.refusals import ApiError, found
from services.scaler.views.files import artifact_links, link_to
from services.scaler.views.happenings import event_page
from services.scaler.views.listing import JobQuery
from services.scaler.views.logs import LogsError, log_page
from services.scaler.views.system import nitro_version
from services.scaler.wiring import Components
from shared.contracts.billing import JobCost
from shared.contracts.job_spec import Tag
from shared.contracts.jobs import Job, JobStatus
from shared.contracts.message import Message
from shared.contracts.rounds import RoundPage
from shared.contracts.views.actors import ActorLanes
from shared.contracts.views.curves import Curves
from shared.contracts.views.events import KEPT_EVENTS, EventPage
from shared.contracts.views.files import ArtifactLinks, LogPage, LogSource
from shared.contracts.views.jobs import JobList, JobSort
from shared.contracts.views.system import Session, SystemView

_UNCHANGED: dict[int | str, dict[str, object]] = {
    304: {"description": "Unchanged since the answer with the tag in `If-None-Match`"}
}
_Handler = TypeVar("_Handler", bound=Callable[..., object])
After = Annotated[
    int | None, Query(ge=-1, lt=2**31, description="The last known round; default: none.")
]


def add_view_routes(routes: APIRouter, parts: Components) -> None:
    """Add the routes."""
    _add_system_routes(routes, parts)
    _add_job_routes(routes, parts)
    _add_round_routes(routes, parts)
    _add_happening_routes(routes, parts)
    _add_file_routes(routes, parts)


def _read(
    routes: APIRouter, path: str, model: type[Message], *errors: int, tag: str = "jobs"
) -> Callable[[_Handler], _Handler]:
    """Return a decorator for the route of a path that answers with this kind of message."""
    responses = {**_UNCHANGED, **problems(*errors)}
    return routes.get(path, response_model=model, responses=responses, tags=[tag])


def _add_system_routes(routes: APIRouter, parts: Components) -> None:
    @_read(routes, "/v1/session", Session, tag="operator")
    async def show_session(request: Request) -> Response:
        """Show the token's role and its permissions."""
        session = Session(
            role=request.state.role,
            auth=parts.settings.auth,
            version=nitro_version(),
            clock=parts.settings.ledger_clock,
        )
        return tagged(request, session)

    @_read(routes, "/v1/system", SystemView, tag="operator")
    async def show_system(request: Request) -> Response:
        """Show the system's load and its parts."""
        return tagged(request, await parts.system.view(request.state.role))


def _add_job_routes(routes: APIRouter, parts: Components) -> None:
    @_read(routes, "/v1/jobs", JobList)
    def list_jobs(
        request: Request,
        status: JobStatus | None = None,
        tag: Annotated[Tag | None, Query(description="Only jobs with this tag.")] = None,
        q: Annotated[
            str | None,
            Query(max_length=80, description="Part of name, id, environment or a tag."),
        ] = None,
        sort: Annotated[
            JobSort,
            Query(
                description=(
                    "A minus means descending. Orders other than by age cover the newest 1,000 "
                    "jobs; `truncated` shows that there are more."
                )
            ),
        ] = "-created",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Cursor = None,
    ) -> Response:
        """List job summaries, newest first by default."""
        query = JobQuery(status=status, tag=tag, text=q, sort=sort, limit=limit, cursor=cursor)
        return tagged(request, parts.listing.page(query))

    @_read(routes, "/v1/jobs/{job_id}", Job, 404)
    def show_job(request: Request, job_id: JobPath) -> Response:
        """Show one job."""
        return tagged(request, parts.shown(found(parts.book.job(job_id), "job", job_id).job))


def _add_round_routes(routes: APIRouter, parts: Components) -> None:
    @_read(routes, "/v1/jobs/{job_id}/rounds", RoundPage, 404)
    def list_rounds(
        request: Request,
        job_id: JobPath,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Cursor = None,
        after: After = None,
    ) -> Response:
        """List a job's full rounds in order."""
        first = max(cursor or 0, 0 if after is None else after + 1)
        return tagged(request, parts.bills.rounds(job_id, first=first, limit=limit))

    @_read(routes, "/v1/jobs/{job_id}/curves", Curves, 404)
    def show_curves(
        request: Request,
        job_id: JobPath,
        after: After = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    ) -> Response:
        """Show a job's rounds as columns for its curves; fast at any length."""
        record = found(parts.book.job(job_id), "job", job_id)
        known = -1 if after is None else after
        return tagged(request, parts.stretches.of(record, after=known, limit=limit))

    @_read(routes, "/v1/jobs/{job_id}/cost", JobCost, 404)
    def show_cost(
        request: Request,
        job_id: JobPath,
        limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
        cursor: Cursor = None,
    ) -> Response:
        """Show a job's bill so far, and a page of its lines; `limit=0` leaves them out."""
        return tagged(request, parts.bills.cost(job_id, first=cursor or 0, limit=limit))


def _add_happening_routes(routes: APIRouter, parts: Components) -> None:
    @_read(routes, "/v1/jobs/{job_id}/events", EventPage, 404)
    def list_events(
        request: Request,
        job_id: JobPath,
        after: Annotated[
            int, Query(ge=-1, lt=2**31, description="Number of the last known event.")
        ] = -1,
        limit: Annotated[int, Query(ge=1, le=KEPT_EVENTS)] = 200,
    ) -> Response:
        """List a job's events, oldest first; the newest 500 are kept."""
        record = found(parts.book.job(job_id), "job", job_id)
        return tagged(request, event_page(parts.book, record, after=after, limit=limit))

    @_read(routes, "/v1/jobs/{job_id}/actors", ActorLanes, 404)
    def list_actors(
        request: Request,
        job_id: JobPath,
        round: Annotated[
            int | None, Query(ge=0, lt=2**31, description="Which round; default: the newest.")
        ] = None,
    ) -> Response:
        """Show the stages of a round's actors, while the scaler remembers them."""
        found(parts.book.job(job_id), "job", job_id)
        return tagged(request, parts.launches.lanes.of(job_id, round))


def _add_file_routes(routes: APIRouter, parts: Components) -> None:
    @_read(routes, "/v1/jobs/{job_id}/artifacts", ArtifactLinks, 404)
    async def list_artifacts(
        request: Request,
        job_id: JobPath,
        after: Annotated[
            str, Query(max_length=1024, description="Name of the last known file.")
        ] = "",
    ) -> Response:
        """List a job's files by name, at most 1,000, with links that are valid for 15 minutes."""
        await parts.jobs.job(job_id)
        links = await parts.file_threads.run(artifact_links, parts.files, job_id, after=after)
        return tagged(request, links)

    @routes.get(
        "/v1/jobs/{job_id}/artifacts/{name:path}",
        response_class=Response,
        responses={307: {"description": "It is in a bucket: follow the link"}, **problems(404)},
        tags=["jobs"],
    )
    async def fetch_artifact(job_id: JobPath, name: str) -> Response:
        """Fetch one of a job's files."""
        await parts.jobs.job(job_id)
        link = await parts.file_threads.run(link_to, parts.files, job_id, name)
        if link is None:
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no file {name!r}")
        if isinstance(link, str):
            return RedirectResponse(link)
        try:
            return await parts.file_threads.run(file_answer, link)
        except OSError as error:  # dropped, or replaced by a newer checkpoint, since it was found
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no file {name!r}") from error

    @_read(routes, "/v1/jobs/{job_id}/logs", LogPage, 404, 502)
    async def list_log_lines(
        request: Request,
        job_id: JobPath,
        source: Annotated[LogSource | None, Query(description="Whose log; default: all.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Response:
        """Show the newest log lines that name a job."""
        job = await parts.jobs.job(job_id)
        try:
            page = await log_page(parts.logs, job, source=source, limit=limit)
        except LogsError as error:
            raise ApiError(HTTPStatus.BAD_GATEWAY, str(error)) from error
        return tagged(request, page)
