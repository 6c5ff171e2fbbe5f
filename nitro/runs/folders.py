"""Jobs as their run folders tell them, while no local system is up."""

from collections.abc import Iterator
from pathlib import Path

import typer
from pydantic import ValidationError

from nitro.errors import CommandError
from nitro.runs.reading import find_run, read_job, read_run
from shared.artifacts.store import COST_FILE, JOB_FILE
from shared.contracts.billing import JobCost
from shared.contracts.jobs import Job, JobStatus


class RunFolders:
    """What `nitro.client.client.NitroClient` tells of jobs, read from a folder of runs."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir

    def every_job(self, *, status: JobStatus | None = None) -> Iterator[Job]:
        """Yield all jobs, newest first."""
        jobs = sorted(self._readable(), key=lambda job: job.created_at, reverse=True)
        yield from (job for job in jobs if status in (None, job.status))

    def get(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            CommandError: There is no such run, or its file is damaged.
        """
        return read_job(find_run(job_id, self._runs_dir))

    def cost(self, job_id: str) -> JobCost | None:
        """Return a job's bill; None where its learner was ended before it wrote one.

        Raises:
            CommandError: There is no such run, or its bill is damaged.
        """
        folder = find_run(job_id, self._runs_dir)
        path = folder / COST_FILE
        try:
            cost = JobCost.read(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CommandError(f"{path}: cannot be read: {error.strerror}") from error
        except ValidationError as error:
            what = error.errors(include_url=False)[0]["msg"]
            raise CommandError(f"{path}: {what}; written by another version?") from error
        return cost.model_copy(update={"lines": read_run(folder).ledger})

    def _readable(self) -> Iterator[Job]:
        """Yield jobs, and name those that cannot be read on standard error."""
        for path in self._runs_dir.glob(f"*/{JOB_FILE}"):
            try:
                yield read_job(path.parent)
            except CommandError as error:
                typer.echo(str(error), err=True)
