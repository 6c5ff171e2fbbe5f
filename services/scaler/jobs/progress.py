"""How far a job is, step by step."""

from shared.contracts.jobs import JobProgress
from shared.contracts.rounds import EvaluationResult, RoundResult


def advanced(progress: JobProgress, rounds: int, result: RoundResult | None) -> JobProgress:
    """Return a job's progress after a round."""
    if result is None:
        return progress.model_copy(update={"rounds": rounds})
    env_steps = progress.env_steps + result.env_steps
    progress = progress.model_copy(update={"rounds": rounds, "env_steps": env_steps})
    return evaluated(progress, result.evaluation)


def evaluated(progress: JobProgress, evaluation: EvaluationResult | None) -> JobProgress:
    """Return a job's progress after an evaluation."""
    mean = None if evaluation is None else evaluation.mean_return
    if mean is None:
        return progress
    best = mean if progress.best_return is None else max(mean, progress.best_return)
    return progress.model_copy(update={"last_return": mean, "best_return": best})
