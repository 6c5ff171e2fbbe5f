"""What the study of off-policy algorithms leaves behind: returns, projected times, policy lag."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Annotated

from pydantic import Field, JsonValue
from rich.table import Table

from benchmarks.environment import Environment
from benchmarks.records.reference import SeedResult
from nitro.runs.reading import Run
from shared.contracts.message import Message, NonNegativeFloat, Number

LEARNS_AT = 1000.0
"""Return that IMPALA has to reach on Hopper: beyond what standing still brings."""


class StudySeed(Message):
    """One seed of one algorithm."""

    training: SeedResult
    projected_wall_s: NonNegativeFloat
    """Wall time on AWS by the cost model, from measured rollouts and updates."""
    updates_per_round: NonNegativeFloat | None
    """Learner batches; None for PPO, which has one batch per round."""
    replays_per_round: NonNegativeFloat | None
    """Of these, batches that had been used before."""
    policy_lag_mean: NonNegativeFloat | None
    """Versions between a trajectory's policy and the learner's, mean over the updates."""


class AlgorithmResult(Message):
    """One algorithm's seeds."""

    algorithm: str
    rounds_in_flight: Annotated[int, Field(ge=1)]
    spec: dict[str, JsonValue]
    """What every seed was asked for, the seed aside."""
    hyperparameters: dict[str, JsonValue]
    seeds: tuple[StudySeed, ...]
    return_mean: Number
    return_std: NonNegativeFloat
    """Over the seeds, with their number below it."""
    projected_wall_s: NonNegativeFloat
    """Mean over the seeds."""


class StudyResult(Message):
    """All algorithms on one environment, with the same number of steps."""

    env_id: str
    command: str
    environment: Environment
    algorithms: tuple[AlgorithmResult, ...]
    claims: dict[str, bool]
    """What readers ask: does it hold in these runs?"""


def study_seed(run: Run, training: SeedResult, *, projected_wall_s: float) -> StudySeed:
    """Add to a finished seed what off-policy rounds tell besides."""
    stats = [line.result.stats for line in run.rounds if line.result is not None]

    def mean(name: str) -> float | None:
        found = [round_stats[name] for round_stats in stats if name in round_stats]
        return fmean(found) if found else None

    return StudySeed(
        training=training,
        projected_wall_s=projected_wall_s,
        updates_per_round=mean("updates"),
        replays_per_round=mean("replays"),
        policy_lag_mean=mean("policy_lag_mean"),
    )


def algorithm_result(run: Run, seeds: Sequence[StudySeed]) -> AlgorithmResult:
    """Sum one algorithm's seeds up; `run` is any of theirs."""
    returns = [seed.training.final_return for seed in seeds]
    return AlgorithmResult(
        algorithm=run.job.spec.algorithm,
        rounds_in_flight=run.job.spec.open_rounds,
        spec=run.job.spec.model_dump(mode="json", exclude={"seed"}),
        hyperparameters=run.job.hyperparameters.model_dump(mode="json"),
        seeds=tuple(seeds),
        return_mean=fmean(returns),
        return_std=pstdev(returns),
        projected_wall_s=fmean(seed.projected_wall_s for seed in seeds),
    )


def claims(algorithms: Sequence[AlgorithmResult]) -> dict[str, bool]:
    """Return what is claimed of the algorithms that are there, and whether it holds."""
    ppo = next((result for result in algorithms if result.algorithm == "ppo"), None)
    found = {}
    for result in algorithms:
        name = _title(result)
        if result.algorithm == "impact" and ppo is not None:
            found[f"{name}: returns at least what PPO does"] = result.return_mean >= ppo.return_mean
            found[f"{name}: takes less projected wall time than PPO"] = (
                result.projected_wall_s < ppo.projected_wall_s
            )
        if result.algorithm == "impala":
            found[f"{name}: returns at least {LEARNS_AT:g}"] = result.return_mean >= LEARNS_AT
    return found


def _title(result: AlgorithmResult) -> str:
    in_flight = f", {result.rounds_in_flight} rounds in flight"
    return result.algorithm.upper() + (in_flight if result.rounds_in_flight > 1 else "")


def study_table(result: StudyResult) -> Table:
    """Lay the algorithms out for people, the claims below them."""
    table = Table(title=f"{result.env_id}, off-policy beside PPO", title_justify="left")
    for heading in ("", "return", "projected wall", "updates", "replays", "policy lag"):
        table.add_column(heading)
    for algorithm in result.algorithms:
        lags = [algorithm.seeds[0].updates_per_round, algorithm.seeds[0].replays_per_round]
        lags.append(algorithm.seeds[0].policy_lag_mean)
        table.add_row(
            f"{_title(algorithm)}, {len(algorithm.seeds)} seeds",
            f"{algorithm.return_mean:.1f} ± {algorithm.return_std:.1f}",
            f"{algorithm.projected_wall_s:,.0f} s",
            *("-" if value is None else f"{value:.2f}" for value in lags),
        )
    for claim, holds in result.claims.items():
        table.add_row(claim, "yes" if holds else "NO", "", "", "", "")
    return table
