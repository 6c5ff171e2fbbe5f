"""`nitro jobs`: show and control the jobs of an API."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.cli.console import command, show
from nitro.cli.options import RUNS, ApiUrl, FreshSchedule, FromScratch, RunsDir

if TYPE_CHECKING:
    from nitro.client.client import NitroClient
    from nitro.runs.reading import RunFolders

app = typer.Typer(
    help="List, show, stop, resume, scale and delete jobs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON, one document.")]
JobName = Annotated[
    str,
    typer.Argument(metavar="JOB_ID", help="Id as in `nitro jobs list`; a unique prefix is enough."),
]


@command(app, "nitro jobs list", "nitro jobs list --status running --json", name="list")
def list_jobs(
    *,
    status: Annotated[
        str | None, typer.Option(help="Only jobs with this status, such as running.")
    ] = None,
    as_json: AsJson = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """List jobs, newest first."""
    from rich.console import Console

    from nitro.cli.job_view import check_status, jobs_table
    from shared.contracts.views.jobs import JobList

    wanted = check_status(status)
    with _jobs(api_url, runs_dir) as source:
        jobs = list(source.every_job(status=wanted))
    if as_json:
        typer.echo(JobList(jobs=tuple(jobs), next_cursor=None).model_dump_json())
    else:
        show(jobs_table(jobs, width=Console().width) if jobs else "no jobs")


@command(
    app, "nitro jobs show hopper-v5-3f2a", "nitro jobs show hopper-v5-3f2a --json", name="show"
)
def show_job(
    job_id: JobName, *, as_json: AsJson = False, api_url: ApiUrl = None, runs_dir: RunsDir = RUNS
) -> None:
    """Show one job: progress, cost and specification."""
    from nitro.cli.job_view import job_table
    from nitro.client.naming import find_job

    with _jobs(api_url, runs_dir) as source:
        job = source.get(find_job(source, job_id))
        cost = source.cost(job.job_id)
    if as_json:
        typer.echo(job.model_dump_json())
    else:
        show(job_table(job, cost))


@command(app, "nitro jobs stop hopper-v5-3f2a")
def stop(
    job_id: JobName, *, as_json: AsJson = False, api_url: ApiUrl = None, runs_dir: RunsDir = RUNS
) -> None:
    """Ask a job to stop after the current update. Its checkpoint is kept."""
    from nitro.client.naming import find_job

    with _client(api_url, runs_dir) as client:
        job = client.stop(find_job(client, job_id))
    typer.echo(job.model_dump_json() if as_json else f"{job.job_id}: {job.status}")


@command(
    app,
    "nitro jobs resume hopper-v5-3f2a",
    "nitro jobs resume hopper-v5-3f2a --rounds 100 --budget-usd 10",
)
def resume(
    job_id: JobName,
    *,
    rounds: Annotated[int | None, typer.Option(help="New, higher number of rounds.", min=1)] = None,
    total_steps: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help="New, higher number of environment steps."),
    ] = None,
    budget_usd: Annotated[
        float | None, typer.Option("--budget-usd", help="New, higher budget.")
    ] = None,
    max_wall_s: Annotated[
        float | None, typer.Option("--max-wall-s", help="New, higher time limit in seconds.")
    ] = None,
    from_scratch: FromScratch = False,
    fresh_schedule: FreshSchedule = False,
    as_json: AsJson = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Continue a job from its last checkpoint.

    To continue a job that finished all its rounds, add --rounds or --total-steps. If steps ended
    it, add --total-steps.
    """
    from nitro.client.beginning import Resumption
    from nitro.client.naming import find_job
    from nitro.spec.total_steps import parse_steps

    with _client(api_url, runs_dir) as client:
        resumption = Resumption(
            job_id=find_job(client, job_id),
            budget_usd=budget_usd,
            max_rounds=rounds,
            max_env_steps=None if total_steps is None else parse_steps(total_steps),
            max_wall_s=max_wall_s,
            from_scratch=from_scratch,
            fresh_schedule=fresh_schedule,
        )
        job = resumption.begin(client)
    typer.echo(job.model_dump_json() if as_json else f"{job.job_id}: {job.status}")


@command(
    app,
    "nitro jobs scale hopper-v5-3f2a --policy hydrozoa",
    "nitro jobs scale hopper-v5-3f2a --policy kungfu --set smoothing=0.6",
    "nitro jobs scale hopper-v5-3f2a --actors 32",
)
def scale(
    job_id: JobName,
    *,
    policy: Annotated[
        str | None,
        typer.Option(metavar="POLICY[:ARG]", help="Same as for `nitro train --scaling`."),
    ] = None,
    actors: Annotated[int | None, typer.Option(help="Fixed number of actors.", min=1)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the policy; repeatable."),
    ] = None,
    as_json: AsJson = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Switch to another scaling policy, or a fixed number of actors, from the next round on."""
    from nitro.client.naming import find_job
    from nitro.spec.scaling_option import build_scaling, scaling_name

    scaling = build_scaling(
        policy, num_actors=actors, assignments=assignments or [], runs_dir=runs_dir
    )
    with _client(api_url, runs_dir) as client:
        job = client.switch_scaling(find_job(client, job_id), scaling)
    since = f" from round {job.switches[-1].round} on" if job.switches else ""
    told = f"{job.job_id}: {scaling_name(scaling)}{since}"
    typer.echo(job.model_dump_json() if as_json else told)


@command(app, "nitro jobs delete hopper-v5-3f2a")
def delete(job_id: JobName, *, api_url: ApiUrl = None, runs_dir: RunsDir = RUNS) -> None:
    """Delete a finished job and its run folder."""
    from nitro.client.naming import find_job

    with _client(api_url, runs_dir) as client:
        found = find_job(client, job_id)
        client.delete(found)
        typer.echo(f"{found}: deleted")


@contextlib.contextmanager
def _jobs(api_url: str | None, runs_dir: Path) -> Iterator["NitroClient | RunFolders"]:
    """Yield the source of jobs: the chosen API, or the folders of local runs."""
    from nitro.client.connection import has_api
    from nitro.runs.reading import RunFolders

    if has_api(api_url, runs_dir):
        with _client(api_url, runs_dir) as client:
            yield client
        return
    typer.echo(f"no local system is up: read from the run folders in {runs_dir}", err=True)
    yield RunFolders(runs_dir)


def _client(api_url: str | None, runs_dir: Path) -> "NitroClient":
    from nitro.client.connection import connect

    return connect(api_url, runs_dir)
