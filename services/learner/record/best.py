"""The checkpoint with the best policy: the highest mean return in an evaluation.

It follows from the record alone. So a resumed learner keeps the same checkpoint as an uninterrupted
one, and a reader of the folder needs no extra file.
"""

from dataclasses import dataclass

from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundLine


@dataclass(frozen=True, slots=True, order=True)
class EvaluatedCheckpoint:
    """A checkpoint and its policy's return; the largest is the best, ties go to the newest."""

    mean_return: float
    next_round: int
    """Names the checkpoint."""


def evaluated_checkpoint(line: RoundLine, spec: JobSpec) -> EvaluatedCheckpoint | None:
    """Return the checkpoint whose policy a line of the record evaluates.

    None without an evaluation, or if episodes are missing: short ones arrive first, so the mean
    would be biased. None for the initial policy, too, which has no checkpoint.
    """
    evaluation = line.evaluation
    if evaluation is None or len(evaluation.returns) < max(1, line.plan.num_evaluations):
        return None
    next_round = spec.rounds_behind(line.plan.round)
    mean_return = evaluation.mean_return
    if next_round == 0 or mean_return is None:
        return None
    return EvaluatedCheckpoint(mean_return, next_round)
