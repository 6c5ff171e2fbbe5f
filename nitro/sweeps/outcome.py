"""A sweep's record of an ended or paused job, from its API."""

from collections.abc import Sequence
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.client.follow import RoundFeed, line_of
from nitro.runs.curves import curve
from nitro.runs.reading import Run
from nitro.sweeps.rows import Outcome, Point, reached
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundRecord


def was_cut(job: Job) -> bool:
    """Whether a job was stopped before its last round."""
    return job.stop_reason == "user" and not made_all_rounds(job)


def made_all_rounds(job: Job) -> bool:
    """Whether a job is finished."""
    done = job.spec.stop.share_done(job.progress.rounds, job.progress.env_steps)
    return done >= 1.0


def outcome_of(client: NitroClient, job: Job, *, end_steps: int | None) -> Outcome:
    """Return a job's outcome.

    Args:
        client: Its API.
        job: The ended job.
        end_steps: Steps that complete the job; None if its rounds do. The first evaluation after
            them is the last that counts, even if the job continued.
    """
    records = RoundFeed(client, job.job_id).fetch()
    cost = client.cost(job.job_id)
    points, last = _points(job, records), job.progress.last_return
    # The final evaluation belongs to no round; only the job has it. The final evaluation of an
    # interrupted job depends on the time of the stop, so it does not count.
    evaluated = bool(records) and records[-1].plan.num_evaluations > 0
    if last is not None and evaluated and not was_cut(job):
        points.append(Point(float(job.progress.env_steps), last))
    if end_steps is not None:
        points = points[: 1 + sum(point.env_steps < end_steps for point in points)]
    return Outcome(
        rounds=job.progress.rounds,
        env_steps=job.progress.env_steps,
        curve=tuple(points),
        spent_usd=max(job.spent_usd, cost.settled_usd),
        reserved_usd=cost.reserved_usd,
        wall_s=sum(record.result.timing.total_s for record in records if record.result),
    )


def has_reached(client: NitroClient, job: Job, env_steps: float) -> bool:
    """Whether a running job has an evaluation after at least this many steps.

    It belongs to a round, not to the job's end, so it does not depend on the time of the stop.
    """
    if job.progress.env_steps < env_steps:
        return False
    records = RoundFeed(client, job.job_id).fetch()
    return reached(_points(job, records), env_steps)


def _points(job: Job, records: Sequence[RoundRecord]) -> list[Point]:
    lines = tuple(line_of(record) for record in records if record.result is not None)
    run = Run(Path(job.job_id), job, lines, ledger=())
    evaluates = bool(job.spec.evaluation.every_rounds)
    found = curve(run, "evaluation" if evaluates else "training")
    return [Point(*map(float, pair)) for pair in zip(found.env_steps, found.returns, strict=True)]
