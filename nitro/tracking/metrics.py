"""A tracker's metrics of a round and of a run: pure functions of a run's record.

Training returns (stochastic policy, fragments) and evaluation returns (deterministic policy, whole
episodes) are different quantities and never share a name. Names are those of TensorBoard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import JsonValue

from nitro.runs.configuration import configuration
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundLine


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A run as a tracker knows it."""

    job_id: str
    name: str
    tags: tuple[str, ...]
    config: dict[str, JsonValue]
    """Every field of the job by its dotted path."""

    @classmethod
    def of(cls, job: Job) -> "TrackedRun":
        """Return a job's run."""
        return cls(
            job_id=job.job_id,
            name=job.spec.name or job.job_id,
            tags=job.spec.tags,
            config=configuration(job),
        )


@dataclass(frozen=True, slots=True)
class TrackedRound:
    """A finished round, or a plan that ended the job; a resume replaces such a plan by a round."""

    index: int
    metrics: dict[str, float]
    is_ending: bool


def round_metrics(line: RoundLine, *, env_steps: int) -> dict[str, float]:
    """Return a round's numbers; for a plan that ended the job, the numbers of its evaluation.

    Args:
        line: The round.
        env_steps: Environment steps up to the round's end.
    """
    plan, result, evaluation = line.plan, line.result, line.evaluation
    numbers: dict[str, float | None] = {
        "env_steps": env_steps,
        "scaling/num_actors": plan.num_actors if plan.stop is None else None,
        "scaling/boosting_score": plan.boosting_score,
        "scaling/ratio": plan.ratio,
        "cost/spent_usd": plan.spent_usd,
    }
    if evaluation is not None:
        numbers["return/evaluation"] = evaluation.mean_return
    if result is not None:
        returns = result.episode_returns
        numbers["return/training"] = fmean(returns) if returns else None
        numbers |= {f"update/{name}": value for name, value in result.stats.items()}
        numbers |= {f"timing/{name}": value for name, value in dict(result.timing).items()}
    if line.curvature is not None:
        numbers["curvature/lambda_max"] = line.curvature.lambda_max
        numbers["curvature/lambda_min"] = line.curvature.lambda_min
    return {name: float(value) for name, value in numbers.items() if value is not None}


def tracked_rounds(lines: Sequence[RoundLine]) -> list[TrackedRound]:
    """Return a run's finished rounds, and the plans that ended it."""
    rounds, env_steps = [], 0
    for line in lines:
        if line.result is None and line.plan.stop is None:
            continue  # still in progress
        env_steps += 0 if line.result is None else line.result.env_steps
        metrics = round_metrics(line, env_steps=env_steps)
        is_ending = line.plan.stop is not None
        rounds.append(TrackedRound(line.plan.round, metrics, is_ending=is_ending))
    return rounds


def summary(job: Job, cost_usd: float) -> dict[str, JsonValue]:
    """Return a run's results."""
    return {
        "status": job.status,
        "stop_reason": job.stop_reason,
        "rounds": job.progress.rounds,
        "env_steps": job.progress.env_steps,
        "best_return": job.progress.best_return,
        "last_return": job.progress.last_return,
        "cost_usd": cost_usd,
    }
