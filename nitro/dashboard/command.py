"""`nitro dashboard`: opens the page of a running system, or of finished runs."""

import os
import sys
import time
import webbrowser
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from nitro.cli.options import RUNS, ApiUrl, RunsDir
from nitro.errors import CommandError

EXAMPLES = (
    "nitro dashboard",
    "nitro dashboard hopper-v5-3f9a1c2b --no-open",
    "nitro dashboard --runs-dir /data/runs",
)
_TAKEN_UP_S = 5.0
"""Time for a browser to read the file that redirects it to the page."""


def dashboard(
    job_id: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB_ID",
            help="The job to show first; its beginning is enough if unique.",
            show_default=False,
        ),
    ] = None,
    *,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, or print the link only.")
    ] = True,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port of the page over runs that have ended; default: a free one.",
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Open the dashboard in a browser.

    It shows the named API, or the running local system. If nothing runs, it shows the runs of the
    folder until Ctrl-C. The printed link signs in anyone who opens it. An API's token is printed on
    a terminal only; a pipe gets the address without it.
    """
    from nitro.client.client import NitroClient
    from nitro.client.naming import find_job
    from nitro.dashboard.page_link import page_link
    from nitro.runs.reading import find_run

    def tell(url: str, token: str, *, private: bool = True) -> None:
        link = page_link(url, token, job_id=job_id)
        typer.echo(link if private else f"{url.rstrip('/')}/")
        if open_browser:
            _open(link)

    running = running_api(api_url, runs_dir)
    if running is not None:
        if job_id is not None:
            with NitroClient(*running) as client:
                job_id = find_job(client, job_id)
        tell(*running, private=sys.stdout.isatty())
        return
    job_id = job_id and find_run(job_id, runs_dir).absolute().name
    # This page's token is read-only and ends with the command, so it may go to a pipe.
    from nitro.dashboard.finished_runs import serve_finished_runs

    serve_finished_runs(runs_dir, port=port, tell=tell)


def running_api(api_url: str | None, runs_dir: Path) -> tuple[str, str] | None:
    """Return address and token of the named or running API; None if nothing runs.

    Raises:
        CommandError: The named API does not answer, or a browser cannot use it.
    """
    from nitro.client.client import NitroClient
    from nitro.client.connection import has_api, signed_for
    from nitro.client.errors import ApiUnreachableError
    from nitro.settings import ADDRESS_FILE, STATE_FOLDER, api_address, api_token, read_settings

    settings = read_settings()
    if not has_api(api_url, runs_dir):
        return None
    url = api_address(api_url, settings, runs_dir)
    if signed_for(url, settings) is not None:
        raise CommandError(
            f"NITRO_SIGN_FOR or the login: {url} wants every request signed for AWS, which a "
            "browser cannot do. Fetch the runs with `nitro jobs pull JOB_ID`; `nitro dashboard` "
            "shows them once no API is named (`nitro logout`, no NITRO_API_URL)"
        )
    token = api_token(url, settings, runs_dir)
    try:
        with NitroClient(url, token) as client:
            client.jobs()
    except ApiUnreachableError:
        named = api_url or settings.api_url
        if named or not (runs_dir / STATE_FOLDER / ADDRESS_FILE).exists():
            raise
        return None  # the address is left over from a killed system
    return url, token


def _open(link: str) -> None:
    """Open a link in a browser, without showing its token in the list of processes."""
    with TemporaryDirectory(prefix="nitro-link-") as folder:
        file = Path(folder) / "dashboard.html"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as text:
            text.write(f'<meta http-equiv="refresh" content="0; url={escape(link)}">')
        if webbrowser.open(file.as_uri()):
            time.sleep(_TAKEN_UP_S)
