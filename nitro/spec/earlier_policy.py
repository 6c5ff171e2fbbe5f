"""`--init-from RUN[:best]`: the earlier job from whose policy a new one starts."""

from pathlib import Path

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.runs.reading import find_run, is_here, read_job
from shared.contracts.checkpoint_rules import Which

_CHECKPOINTS: tuple[Which, ...] = ("newest", "best")


def earlier_policy(text: str, runs_dir: Path, *, env_id: JsonValue) -> dict[str, JsonValue]:
    """Return a new job's fields for its initial policy.

    Its default environment is that of the earlier job.

    Args:
        text: `RUN`, `RUN:newest` or `RUN:best`. RUN may be a folder or a prefix of a job's id, if
            the run is on this machine.
        runs_dir: Folder of the local runs.
        env_id: The new job's environment, if given.

    Raises:
        CommandError: There is no such checkpoint, or the run is in another folder.
    """
    run, _, which = text.rpartition(":")
    if which not in _CHECKPOINTS:
        run, which = text, "newest"
    if not is_here(run, runs_dir):  # the API has it, or reports that it is missing
        return {"init_from": {"job_id": run, "checkpoint": which}}
    folder = find_run(run, runs_dir).absolute()
    if not runs_dir.is_dir() or not folder.parent.samefile(runs_dir):
        raise CommandError(
            f"--init-from: {folder} is not in {runs_dir}, where the learner looks: copy it there, "
            "or give --runs-dir"
        )
    said: dict[str, JsonValue] = {"init_from": {"job_id": folder.name, "checkpoint": which}}
    return said if env_id is not None else said | {"env_id": read_job(folder).spec.env_id}
