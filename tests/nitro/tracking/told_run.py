"""A run that trackers are told of."""

from pathlib import Path

from nitro.runs.reading import Run
from shared.contracts.jobs import Job, JobProgress
from shared.contracts.rounds import EvaluationResult, RoundLine
from tests.nitro.synthetic_run import job, plan, result


def run_of(rounds: int) -> Run:
    done: Job = job(progress=JobProgress(rounds=rounds))
    named = done.spec.model_copy(update={"name": "baseline", "tags": ("sweep=1", "study")})
    evaluation = EvaluationResult(policy_version=0, returns=(7.0,), lengths=(1,))
    lines = tuple(
        RoundLine(plan=plan(index), result=result(index), curvature=None, evaluation=evaluation)
        for index in range(rounds)
    )
    shown = done.model_copy(update={"spec": named})
    return Run(folder=Path("nowhere"), job=shown, rounds=lines, ledger=())
