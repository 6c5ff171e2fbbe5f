"""Ends jobs of a killed local system before the next job starts."""

from collections.abc import Callable, Sequence
from time import monotonic

from nitro.local.access import Api
from shared.contracts.jobs import FINISHED, JobStatus

_LOOK_S = 0.05
_PATIENCE_S = 60.0
"""Time for the learner to end such jobs: the dead learner's lease has to expire first."""
UNFINISHED: tuple[JobStatus, ...] = ("checking", "queued", "running", "stopping")


def end_left_over(
    api: Api,
    statuses: Sequence[JobStatus] = UNFINISHED,
    *,
    keep: str | None,
    tell: Callable[[str], object],
    pause: Callable[[float], object],
) -> None:
    """Stop the open jobs of a killed system, and wait until the learner has ended them.

    Otherwise the learner would resume them before the next job, or never end stopped ones, because
    the next job is available at once. Actors stay warm for these jobs until they end.
    """
    waiting = stop_left_over(api, statuses, keep=keep, tell=tell)
    if waiting:
        tell("waiting until the learner has ended earlier jobs")
    deadline = monotonic() + _PATIENCE_S
    while waiting and monotonic() < deadline:
        api.check()
        pause(_LOOK_S)
        waiting = [job_id for job_id in waiting if api.client.get(job_id).status not in FINISHED]
    for job_id in waiting:
        tell(f"{job_id} has not ended yet")


def stop_left_over(
    api: Api,
    statuses: Sequence[JobStatus],
    *,
    keep: str | None,
    tell: Callable[[str], object],
) -> list[str]:
    """Stop jobs with a message, and return the jobs that a learner has yet to end."""
    left_over = [job for status in statuses for job in api.client.every_job(status=status)]
    stopped = [api.client.stop(job.job_id) for job in left_over if job.job_id != keep]
    for job in stopped:
        tell(
            f"stopped {job.job_id}, left unfinished earlier; "
            f"continue with: {api.place.command('train', '--resume', job.job_id)}"
        )
    return [job.job_id for job in stopped if job.status not in FINISHED]
