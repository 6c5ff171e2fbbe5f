"""Resolving a job by its id or a prefix of it."""

from http import HTTPStatus
from typing import TYPE_CHECKING

from nitro.client.client import NitroClient
from nitro.client.errors import ApiError
from nitro.errors import CommandError

if TYPE_CHECKING:
    from nitro.runs.reading import RunFolders

_MOST_NAMED = 10


def find_job(source: "NitroClient | RunFolders", job: str) -> str:
    """Return the id of the job with this id or prefix.

    Raises:
        CommandError: No job or several jobs have this prefix; lists them.
    """
    try:
        return source.get(job).job_id
    except ApiError as error:
        if error.problem.status != HTTPStatus.NOT_FOUND:
            raise
        known = [each.job_id for each in source.every_job()] if job else []
        begun = [each for each in known if each.startswith(job)]
        if len(begun) > 1:
            several = ", ".join(begun[:_MOST_NAMED])
            raise CommandError(
                f"JOB_ID: {job!r} matches several jobs, use a longer prefix: {several}"
            ) from None
        if not begun:
            raise
        return begun[0]
