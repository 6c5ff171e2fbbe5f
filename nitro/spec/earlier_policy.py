"""`--init-from RUN[:best]`: the earlier job whose policy a new one begins with."""

from pathlib import Path

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.runs.reading import find_run, is_here, read_job
from shared.contracts.job_spec import Which

_CHECKPOINTS: tuple[Which, ...] = ("newest", "best")


def earlier_policy(text: str, runs_dir: Path, *, env_id: JsonValue) -> dict[str, JsonValue]:
    """Return what a new job says of the policy that it begins with.

    Without an environment of its own it has that of the earlier job.

    Args:
        text: `RUN`, `RUN:newest` or `RUN:best`. RUN may be a folder or how a job's id begins, if
            the run is on this machine.
        runs_dir: Folder of the local runs.
        env_id: What the new job says of its environment.

    Raises:
        CommandError: There is no such checkpoint, or the run is in another folder.
    """
    run, _, which = text.rpartition(":")
    if which not in _CHECKPOINTS:
        run, which = text, "newest"
    if not is_here(run, runs_dir):  # the API has it, or says that it has not
        return {"init_from": {"job_id": run, "checkpoint": which}}
    folder = find_run(run, runs_dir).absolute()
    if not runs_dir.is_dir() or not folder.parent.samefile(runs_dir):
        raise CommandError(
            f"--init-from: {folder} is not in {runs_dir}, where the learner looks: copy it there, "
            "or give --runs-dir"
        )
    said: dict[str, JsonValue] = {"init_from": {"job_id": folder.name, "checkpoint": which}}
    return said if env_id is not None else said | {"env_id": read_job(folder).spec.env_id}
