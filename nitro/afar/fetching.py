"""Fetches a job's files from its API into a folder of runs, for all other commands.

File names come from the API, so none may lead out of the job's folder. Files are written
atomically.
"""

import os
import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path, PurePosixPath

import typer

from nitro.client.client import NitroClient
from nitro.client.connection import connect
from nitro.client.errors import AWAY, ApiError, ApiUnreachableError
from nitro.errors import EXIT_FAILED, CommandError
from nitro.hints import Place
from nitro.runs.reading import find_run
from nitro.settings import named_api
from nitro.tables import plain
from shared.artifacts.store import CHECKPOINTS, JOB_FILE
from shared.contracts.message import JOB_ID_FORM
from shared.contracts.views.files import ArtifactLink, ArtifactLinks

MARK = ".fetched"
"""Marks a fetched folder, which is updated before each read."""
Wanted = Callable[[str], bool]


def everything(name: str) -> bool:
    """Select every file."""
    return bool(name)


def record_only(name: str) -> bool:
    """Select the run's record, without checkpoints."""
    return "/" not in name


def with_checkpoints(name: str) -> bool:
    """Select the record and the checkpoints."""
    return record_only(name) or name.startswith(f"{CHECKPOINTS}/")


def local_run(run: str, runs_dir: Path, *, wanted: Wanted) -> Path:
    """Return a run's folder; fetch it from the named API if it is not on this machine.

    If the API or the job is gone, an earlier fetched folder is used as it is, with a warning.

    Raises:
        CommandError: The run does not exist, or cannot be fetched.
    """
    folder: Path | None = None
    missing: CommandError | None = None
    try:
        folder = find_run(run, runs_dir)
    except CommandError as error:
        missing = error
    if folder is not None and not (folder / MARK).exists():
        return folder
    job_id = run if folder is None else folder.absolute().name
    if not named_api() or not _is_job_id(job_id):
        if folder is not None:
            return folder
        raise missing or CommandError(f"RUN: no run at {run!r}")
    with connect(None, runs_dir) as client:
        try:
            return fetch(client, job_id, runs_dir, wanted=wanted)
        except (ApiError, ApiUnreachableError) as error:
            if folder is not None and _is_gone(error):
                typer.echo(plain(f"{folder} is as it was fetched before: {error}"), err=True)
                return folder
            if missing is not None and _is_missing(error):
                raise CommandError(f"{missing}; nor has the API such a job: {error}") from error
            raise


def fetch(
    client: NitroClient,
    job_id: str,
    runs_dir: Path,
    *,
    wanted: Wanted = everything,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Fetch a job's missing or changed files; return the folder.

    Args:
        client: The API.
        job_id: The job.
        runs_dir: Parent of the job's folder.
        wanted: Selects files by name.
        tell: Called with a line about each fetched file.

    Raises:
        CommandError: The job id is malformed, its folder belongs to a local run, or a file cannot
            be fetched or written.
    """
    if not _is_job_id(job_id):
        jobs = Place(runs_dir=runs_dir).command("jobs", "list")
        raise CommandError(f"JOB_ID: {job_id!r:.80} is no id of a job; see `{jobs}`")
    folder = runs_dir / job_id
    links = client.artifacts(job_id)
    if folder.is_dir() and not (folder / MARK).exists() and any(folder.iterdir()):
        raise CommandError(f"{folder} is a run of this machine: choose another --runs-dir")
    if not any(link.name == JOB_FILE for link in links.files):
        raise CommandError(
            f"job {job_id} has left nothing yet at {links.location}", exit_code=EXIT_FAILED
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        try:
            _download_new(client, links, folder, wanted, tell)
        except ApiError as error:
            if not _is_missing(error):
                raise
            # The job has removed a checkpoint since the listing.
            links = client.artifacts(job_id)
            _download_new(client, links, folder, wanted, tell)
        _forget_old_checkpoints(folder, {link.name for link in links.files}, wanted)
    except OSError as error:
        raise CommandError(f"{folder}: cannot be written: {error.strerror}") from error
    return folder


def _download_new(
    client: NitroClient,
    links: ArtifactLinks,
    folder: Path,
    wanted: Wanted,
    tell: Callable[[str], object],
) -> None:
    for link in links.files:
        target = _inside(folder, link.name)
        if wanted(link.name) and not _is_here(target, link):
            tell(f"{link.name}  {link.size:,} bytes")
            _download(client, link, target)


def _is_missing(error: CommandError) -> bool:
    return isinstance(error, ApiError) and error.problem.status == HTTPStatus.NOT_FOUND


def _is_gone(error: CommandError) -> bool:
    """Whether the API is unreachable or has no such job, as opposed to a refusal."""
    return not isinstance(error, ApiError) or error.problem.status in {
        *AWAY,
        HTTPStatus.NOT_FOUND,
    }


def _download(client: NitroClient, link: ArtifactLink, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with staged.open("wb") as file:
            for piece in client.download(link):
                file.write(piece)
        os.utime(staged, (link.modified_at, link.modified_at))
        staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def _is_here(path: Path, link: ArtifactLink) -> bool:
    if not path.is_file():
        return False
    status = path.stat()
    return status.st_size == link.size and abs(status.st_mtime - link.modified_at) < 0.01


def _forget_old_checkpoints(folder: Path, names: set[str], wanted: Wanted) -> None:
    """Remove checkpoints that the job has removed, so that the newest one is the same."""
    if not wanted(f"{CHECKPOINTS}/"):
        return
    for path in sorted((folder / CHECKPOINTS).rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in names:
            path.unlink()


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") for part in path.parts)
    if path.is_absolute() or hidden or not path.parts or "\\" in name or "\x00" in name:
        raise CommandError(f"the API names a file {name!r:.80}, which no run can have")
    return folder / path


def _is_job_id(text: str) -> bool:
    return re.fullmatch(JOB_ID_FORM, text) is not None
