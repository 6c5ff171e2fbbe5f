"""Rows of a list of jobs."""

from typing import Literal

from shared.contracts.job_spec import AlgorithmName, JobName, Tag
from shared.contracts.jobs import Job, JobStatus, StopReason, Wait
from shared.contracts.message import Count, JobId, Message, NonNegativeFloat, Number, PositiveInt
from shared.hyperparameters.presets import HyperparameterValue, Preset

JobSort = Literal[
    "created", "-created", "spent", "-spent", "return", "-return", "round", "-round",
    "name", "-name", "status", "-status",
]  # fmt: skip
"""Sort key of a list of jobs; a minus means descending."""


class JobSummary(Message):
    """One job of a list."""

    job_id: JobId
    name: JobName | None
    tags: tuple[Tag, ...]
    status: JobStatus
    stop_reason: StopReason | None
    error: str | None
    env_id: str
    algorithm: AlgorithmName
    preset: Preset
    seed: Count
    hyperparameters: dict[str, HyperparameterValue] = {}
    """Values that replace the preset's."""
    scaling: str
    """Name of the current scaling policy."""
    round: Count
    """Policy updates made."""
    max_rounds: Count
    env_steps: Count
    ending_steps: PositiveInt | None = None
    """Environment steps that end it long before its rounds; None if its rounds end it."""
    last_return: Number | None
    """Mean of the latest evaluation."""
    best_return: Number | None
    target_return: Number | None
    spent_usd: NonNegativeFloat
    reserved_usd: NonNegativeFloat = 0.0
    """Money reserved, at the worst case, for unbilled launches."""
    budget_usd: NonNegativeFloat
    actors_now: Count = 0
    """Invocations in flight, including evaluation episodes."""
    actors_min: Count
    actors_max: Count
    created_at: Number
    started_at: Number | None
    finished_at: Number | None
    can_go_on: bool
    """Whether it has ended and can be resumed."""
    waits_for: Wait | None = None
    """Set if it has to wait, for example after a restart."""

    @classmethod
    def of(cls, job: Job, *, reserved_usd: float = 0.0, actors_now: int = 0) -> "JobSummary":
        """Return a job's row."""
        spec, progress = job.spec, job.progress
        return cls(
            job_id=job.job_id,
            name=spec.name,
            tags=spec.tags,
            status=job.status,
            stop_reason=job.stop_reason,
            error=job.error,
            env_id=spec.env_id,
            algorithm=spec.algorithm,
            preset=spec.preset,
            seed=spec.seed,
            hyperparameters=spec.hyperparameters,
            scaling=job.scaling_of(progress.rounds).policy,
            round=progress.rounds,
            max_rounds=spec.stop.max_rounds,
            env_steps=progress.env_steps,
            ending_steps=spec.stop.ending_steps,
            last_return=progress.last_return,
            best_return=progress.best_return,
            target_return=spec.stop.target_return,
            spent_usd=job.spent_usd,
            reserved_usd=reserved_usd,
            budget_usd=spec.stop.budget_usd,
            actors_now=actors_now,
            actors_min=spec.actors.min,
            actors_max=spec.actors.max,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            can_go_on=job.can_go_on,
            waits_for=job.waits_for,
        )


class JobList(Message):
    """One page of jobs."""

    jobs: tuple[JobSummary, ...]
    next_cursor: str | None
    """Pass as `cursor` to get the next page; None at the end."""
    truncated: bool = False
    """Whether there may be older jobs: a page scans at most 1,000. The next page continues after
    them, even after an empty page.
    """
