"""Which checkpoint has the best policy: the one with the highest mean return in an evaluation.

It follows from the record alone. So a learner that resumes keeps the same checkpoint as one that
was never interrupted, and a reader of the folder finds it without a file that says so.
"""

from dataclasses import dataclass

from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundLine


@dataclass(frozen=True, slots=True, order=True)
class EvaluatedCheckpoint:
    """A checkpoint and what its policy was worth; the largest is the best, of equals the newest."""

    mean_return: float
    next_round: int
    """Names the checkpoint."""


def evaluated_checkpoint(line: RoundLine, spec: JobSpec) -> EvaluatedCheckpoint | None:
    """Return the checkpoint whose policy a line of the record evaluates.

    None where nothing was evaluated, or where episodes are missing: the short ones arrive first, so
    their mean would mislead. None for the initial policy, too, which has no checkpoint.
    """
    evaluation = line.evaluation
    if evaluation is None or len(evaluation.returns) < max(1, line.plan.num_evaluations):
        return None
    next_round = spec.rounds_behind(line.plan.round)
    mean_return = evaluation.mean_return
    if next_round == 0 or mean_return is None:
        return None
    return EvaluatedCheckpoint(mean_return, next_round)
