"""A run's folder as the learner writes it, with made-up numbers."""

import io
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, RenderableType

from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec, ObservationSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobProgress
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    RoundPlan,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)

JOB_ID = "hopper-v5-3f2a"
_PRICES = {
    "learner": ("second", 2.7e-4),
    "lambda_duration": ("GB-second", 1.6667e-5),
    "lambda_requests": ("request", 2e-7),
    "cache": ("second", 1.9e-5),
    "scaler": ("second", 3.4e-6),
}


def job(*, rounds: int = 12, **fields: object) -> Job:
    return Job.model_validate(
        {
            "job_id": JOB_ID,
            "spec": _spec(rounds),
            "environment": EnvironmentSpec(
                env_id="Hopper-v5",
                observation=ObservationSpec(shape=(11,), dtype="float32"),
                action=ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3),
                max_episode_steps=1000,
                versions={},
            ),
            "status": "succeeded",
            "stop_reason": "max_rounds",
            "created_at": 1000.0,
            "started_at": 1001.0,
            "finished_at": 1061.0,
            "progress": JobProgress(
                rounds=rounds, env_steps=4096 * rounds, last_return=400.0, best_return=420.0
            ),
            "spent_usd": 0.04,
            **fields,
        }
    )


def _spec(rounds: int, **fields: object) -> JobSpec:
    return JobSpec.model_validate({"seed": 7, "stop": {"max_rounds": rounds}, **fields})


def plan(index: int, **fields: object) -> RoundPlan:
    return RoundPlan.model_validate(
        {
            "job_id": JOB_ID,
            "round": index,
            "attempt": 0,
            "policy_version": index,
            "num_actors": 8,
            "num_evaluations": 0,
            "requested": 8,
            "boosting_score": 0.5,
            "ratio": 1.0,
            "reason": "score",
            "deadline_s": 120.0,
            "quorum": 4,
            "stop": None,
            "spent_usd": 0.0,
            "settled": (),
            **fields,
        }
    )


def result(
    index: int, *, steps: int = 2048, returns: tuple[float, ...] = (10.0,), **fields: object
) -> RoundResult:
    return RoundResult.model_validate(
        {
            "round": index,
            "policy_version": index + 1,
            "trajectories": TrajectoryCounts(launched=8, used=8, late=0, duplicate=0, lost=0),
            "env_steps": steps,
            "episode_returns": returns,
            "evaluation": None,
            "stats": {},
            "timing": RoundTiming.model_validate(
                {**dict.fromkeys(RoundTiming.model_fields, 0.5), "total_s": 2.0}
            ),
            **fields,
        }
    )


def evaluation(version: int, mean: float) -> EvaluationResult:
    return EvaluationResult(
        policy_version=version, returns=(mean - 10, mean, mean + 10), lengths=(100, 100, 100)
    )


def cost(**fields: object) -> JobCost:
    return JobCost.model_validate(
        {
            "job_id": JOB_ID,
            "settled_usd": 0.0917,
            "reserved_usd": 0.0,
            "by_item": {"learner": 0.09, "cache": 0.0017},
            "lines": (),
            "price_table": "test prices",
            "projected_wall_s": 75.0,
            "assumptions": (),
            **fields,
        }
    )


def rendered(table: RenderableType, *, width: int = 120) -> str:
    """Return what a person reads."""
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def ledger(index: int, actors: int) -> list[LedgerLine]:
    quantities = {
        "learner": 6.0,
        "lambda_duration": actors * 1.4,
        "lambda_requests": float(actors),
        "cache": 6.0,
        "scaler": 6.0,
    }
    return [
        LedgerLine.model_validate(
            {
                "round": index,
                "attempt": 0,
                "item": item,
                "quantity": quantity,
                "unit": _PRICES[item][0],
                "unit_price_usd": _PRICES[item][1],
                "amount_usd": quantity * _PRICES[item][1],
            }
        )
        for item, quantity in quantities.items()
    ]


def write_run(
    runs_dir: Path,
    *,
    job_id: str = JOB_ID,
    rounds: int = 12,
    overlap: int = 0,
    batches: int = 1,
    asked: Mapping[str, object] | None = None,
    **fields: object,
) -> Path:
    """Write a run that learns, its actors following a falling score.

    With `overlap` a round's policy lacks so many rounds, and the job ends so many rounds later;
    every round brings as many policy versions as it has `batches`. `asked` are fields of the job's
    specification, `fields` those of the job. Other seeds have other numbers.
    """
    folder = runs_dir / job_id
    folder.mkdir(parents=True)
    overlapping = {"algorithm": "impact", "rounds_in_flight": overlap + 1} if overlap else {}
    spec = _spec(rounds, **overlapping, **(asked or {}))
    dice = random.Random(spec.seed)
    lines, bill = [], []
    for index in range(rounds):
        score = None if index == 0 else max(0.0, dice.uniform(0.1, 1.0) * 0.97**index)
        requested = 64 if score is None else max(8, round(64 * score))
        granted = requested if index % 7 else min(requested, 40)
        mean = 20 + 400 * (1 - math.exp(-3 * index / rounds))
        measured = (
            EvaluationResult(
                policy_version=batches * max(0, index - overlap),
                returns=tuple(mean * dice.uniform(0.7, 1.3) for _ in range(10)),
                lengths=(100,) * 10,
            )
            if index % 5 == 0
            else None
        )
        returns = tuple(mean * dice.uniform(0.5, 1.1) for _ in range(8))
        learned = result(
            index,
            policy_version=batches * (index + 1),
            steps=granted * 256,
            returns=returns,
            evaluation=measured,
        )
        lines.append(
            {
                "plan": plan(
                    index,
                    policy_version=batches * max(0, index - overlap),
                    num_actors=granted,
                    requested=requested,
                    boosting_score=score,
                    ratio=None if index == 0 else dice.uniform(0.2, 3.0),
                ),
                "result": learned,
                "curvature": Curvature(
                    lambda_max=1.0,
                    lambda_min=-2.0,
                    residual=0.01,
                    matvecs=12,
                    num_samples=512,
                    elapsed_s=0.1,
                ),
                "evaluation": measured,
            }
        )
        bill += ledger(index, granted)
    for index in range(rounds, rounds + overlap + 1):
        is_last = index == rounds + overlap
        lines.append(
            {
                "plan": plan(
                    index,
                    policy_version=batches * (index - overlap),
                    num_actors=0,
                    requested=0,
                    boosting_score=None,
                    ratio=None,
                    num_evaluations=3 if is_last else 0,
                    stop="max_rounds",
                ),
                "result": None,
                "curvature": None,
                "evaluation": evaluation(batches * rounds, 430.0) if is_last else None,
            }
        )
        bill += ledger(index, 0)
    texts = [
        json.dumps({k: v.model_dump(mode="json") if v else None for k, v in line.items()})
        for line in lines
    ]
    described = job(rounds=rounds, spec=spec, job_id=job_id, **fields)
    (folder / "job.json").write_text(described.model_dump_json())
    (folder / "rounds.jsonl").write_text("".join(f"{text}\n" for text in texts))
    (folder / "ledger.jsonl").write_text("".join(f"{line.model_dump_json()}\n" for line in bill))
    return folder
