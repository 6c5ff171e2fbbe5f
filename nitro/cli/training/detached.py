"""`nitro train --detach`: submit a job, and leave it to the system that trains it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console

from nitro.errors import CommandError
from nitro.hints import Place
from nitro.local.access import Api
from nitro.local.state_folder import StateFolder
from nitro.settings import read_settings
from nitro.tables import print_text
from shared.contracts.jobs import Job


def require_lasting(api_url: str | None, runs_dir: Path) -> None:
    """Require a system that outlives this command.

    Raises:
        CommandError: No API is named, and no `nitro up` runs.
    """
    if api_url or read_settings().api_url or StateFolder(runs_dir).is_served():
        return
    up = Place(runs_dir=runs_dir).command("up")
    raise CommandError(
        f"--detach: a system that this command starts ends with it; run `{up}` in another "
        "terminal, or name an API"
    )


def leave(jobs: Sequence[Job], api: Api, *, as_json: bool, console: Console, stdout: TextIO) -> int:
    """Wait until jobs are admitted, print commands to find them, and return the exit code.

    Raises:
        JobRefusedError: A job is refused.
    """
    admitted = [api.client.admitted(job) for job in jobs]
    for job in admitted:
        follow, stop = (api.place.command("jobs", verb, job.job_id) for verb in ("follow", "stop"))
        print_text(console, f"job {job.job_id}\n  {follow}\n  {stop}")
    if as_json:
        told = [job.model_dump_json() for job in admitted]
        stdout.write(f"[{', '.join(told)}]\n" if len(told) > 1 else f"{told[0]}\n")
        stdout.flush()
    return 0
