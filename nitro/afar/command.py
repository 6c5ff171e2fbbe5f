"""`nitro login`, and the commands of `nitro jobs` that show or fetch a job, remote or local."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nitro.cli.console import command, show
from nitro.cli.jobs_command import AsJson, JobName
from nitro.cli.options import RUNS, ApiUrl, RunsDir
from nitro.errors import EXIT_FAILED, CommandError


def add_commands(app: typer.Typer, jobs: typer.Typer) -> None:
    """Add the commands."""
    command(app, "nitro login https://abc.execute-api.eu-west-1.amazonaws.com")(login)
    command(app, "nitro logout")(logout)
    command(jobs, "nitro jobs follow hopper-v5-3f2a")(follow)
    command(jobs, "nitro jobs logs hopper-v5-3f2a --source learner --limit 50")(logs)
    command(jobs, "nitro jobs events hopper-v5-3f2a --json")(events)
    command(jobs, "nitro jobs pull hopper-v5-3f2a")(pull)
    command(jobs, "nitro jobs rounds hopper-v5-3f2a --after 100 --json")(rounds)


def login(
    api_url: Annotated[str, typer.Argument(help="REST API of a deployment.")],
    *,
    sign_for: Annotated[
        str | None,
        typer.Option(help="AWS region to sign requests for, with `endpoint: iam`."),
    ] = None,
) -> None:
    """Store an API's address and token for later commands, readable by you alone.

    The token comes from a prompt or from standard input, never from an argument. `nitro jobs` and
    the commands that need a run's files use the stored login, unless a local system is up.
    """
    from pydantic import SecretStr

    from nitro.afar.login import Login, keep_login
    from nitro.client.client import NitroClient
    from nitro.settings import checked_address
    from shared.service.http_client import is_loopback

    url = checked_address(api_url)
    if url.startswith("http://") and not is_loopback(url):
        typer.echo(f"{url} is not encrypted: whoever is in between reads the token", err=True)
    asked = sys.stdin.isatty()
    token = (typer.prompt("Token", hide_input=True) if asked else sys.stdin.readline()).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandError("the token is one word of printable ASCII characters")
    with NitroClient(url, token, sign_for=sign_for) as client:
        role = client.session().role
    path = keep_login(Login(api_url=url, token=SecretStr(token), sign_for=sign_for))
    typer.echo(f"signed in to {url} as {role}; kept in {path}")


def logout() -> None:
    """Remove the address and the token that `nitro login` stored."""
    from nitro.afar.login import forget_login

    typer.echo("signed out" if forget_login() else "nobody was signed in")


def follow(job_id: JobName, *, api_url: ApiUrl = None, runs_dir: RunsDir = RUNS) -> None:
    """Show a job live until it ends. Ctrl-C leaves it running."""
    from nitro.cli.progress import progress_view
    from nitro.client.connection import connect
    from nitro.client.follow import follow as followed
    from nitro.client.naming import find_job
    from nitro.tables import Output, plain

    with connect(api_url, runs_dir) as client, progress_view(Output()) as view:
        for snapshot in followed(client, find_job(client, job_id), check=lambda: None):
            view.show(snapshot)
    job = snapshot.job
    typer.echo(plain(f"{job.job_id}: {job.status} ({job.error or job.stop_reason})"))
    if job.status == "failed":
        raise typer.Exit(EXIT_FAILED)


def logs(
    job_id: JobName,
    *,
    source: Annotated[
        str | None, typer.Option(metavar="learner|scaler|actor", help="Whose; default: all.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Only so many, the newest.", min=1, max=1000)] = 200,
    as_json: AsJson = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show the newest log lines of a job."""
    from nitro.client.connection import connect
    from nitro.client.naming import find_job
    from nitro.tables import plain

    with connect(api_url, runs_dir) as client:
        page = client.logs(find_job(client, job_id), source=source, limit=limit)
    if as_json:
        typer.echo(page.model_dump_json())
        return
    if not page.sources:
        raise CommandError("this API keeps no logs; in containers: docker compose logs")
    for line in page.lines:
        typer.echo(plain(f"{line.source}  {line.text}"))


def events(
    job_id: JobName, *, as_json: AsJson = False, api_url: ApiUrl = None, runs_dir: RunsDir = RUNS
) -> None:
    """Show a job's events: launches, lost actors, changes, stops."""
    from nitro.afar.tables import events_table, every_event
    from nitro.client.connection import connect
    from nitro.client.naming import find_job

    with connect(api_url, runs_dir) as client:
        page = every_event(client, find_job(client, job_id))
    if as_json:
        typer.echo(page.model_dump_json())
    else:
        show(events_table(page.events))


def rounds(
    job_id: JobName,
    *,
    after: Annotated[int, typer.Option(help="Only rounds after this one.", min=-1)] = -1,
    as_json: AsJson = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show a job's rounds: actors, returns, score, seconds and dollars."""
    import json

    from nitro.afar.tables import every_row, rounds_table
    from nitro.client.connection import connect
    from nitro.client.naming import find_job

    with connect(api_url, runs_dir) as client:
        rows = every_row(client, find_job(client, job_id), after=after)
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        show(rounds_table(rows) if rows else "no rounds")


def pull(
    job_id: JobName,
    *,
    api_url: ApiUrl = None,
    runs_dir: Annotated[Path, typer.Option("--runs-dir", help="Where the folder goes.")] = RUNS,
) -> None:
    """Fetch a job's files into a run folder. A repeated call fetches only changed files."""
    from nitro.afar.fetching import fetch
    from nitro.client.connection import connect
    from nitro.client.naming import find_job
    from nitro.tables import plain

    def tell(line: str) -> None:
        typer.echo(plain(line), err=True)

    with connect(api_url, runs_dir) as client:
        folder = fetch(client, find_job(client, job_id), runs_dir, tell=tell)
    typer.echo(str(folder))
