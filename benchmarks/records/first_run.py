"""What seeds of the starting job of `nitro train` amount to: returns, time and projected cost."""

from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, median

from pydantic import JsonValue
from rich.table import Table

from benchmarks.environment import Environment
from nitro.runs.reading import Run
from nitro.runs.summary import duration
from shared.contracts.jobs import Job
from shared.contracts.message import Count, Message, NonNegativeFloat, Number, PositiveInt

TARGET_RETURN = 2500.0
"""Median of the seeds' final returns on Hopper."""


class FirstRunSeed(Message):
    """What became of one seed."""

    seed: Count
    job_id: str
    env_steps: PositiveInt
    first_return: Number
    """Mean of the first evaluation, with the policy that has learned nothing."""
    final_return: Number
    """Mean of the last one, with the policy that was trained."""
    best_return: Number
    final_episodes: tuple[Number, ...]
    """Returns of the last evaluation's episodes."""
    wall_s: NonNegativeFloat
    """What the rounds took, evaluations included; without the system's start."""
    steps_per_s: NonNegativeFloat
    projected_usd: NonNegativeFloat
    """What the job would cost on AWS."""
    curve: tuple[tuple[Count, Number], ...]
    """Environment steps and mean return of each evaluation."""


class FirstRunResult(Message):
    """Seeds of one environment's starting job."""

    env_id: str
    command: str
    environment: Environment
    spec: dict[str, JsonValue]
    """What every seed was asked for, the seed aside."""
    hyperparameters: dict[str, JsonValue]
    seeds: tuple[FirstRunSeed, ...]
    median_final_return: Number
    median_wall_s: NonNegativeFloat
    met: bool | None
    """Whether the median return is what it should be; None where nothing is asked for."""


def first_run_seed(run: Run) -> FirstRunSeed:
    """Sum a finished run up.

    Raises:
        RuntimeError: It has no evaluation.
    """
    results = [line.result for line in run.rounds if line.result is not None]
    steps = [0, *accumulate(result.env_steps for result in results)]
    evaluated = [(updates, each.returns) for updates, each in run.evaluations if each.returns]
    if not evaluated:
        raise RuntimeError(f"{run.folder}: no evaluation came, so there is no return")
    curve = [(steps[min(updates, len(results))], fmean(returns)) for updates, returns in evaluated]
    wall_s = sum(result.timing.total_s for result in results)
    means = [mean for _, mean in curve]
    return FirstRunSeed(
        seed=run.job.spec.seed,
        job_id=run.job.job_id,
        env_steps=steps[-1],
        first_return=means[0],
        final_return=means[-1],
        best_return=max(means),
        final_episodes=tuple(evaluated[-1][1]),
        wall_s=wall_s,
        steps_per_s=steps[-1] / wall_s,
        projected_usd=sum(line.amount_usd for line in run.ledger),
        curve=tuple(curve),
    )


def summed_up(
    job: Job, seeds: Sequence[FirstRunSeed], *, command: str, environment: Environment
) -> FirstRunResult:
    """Sum at least one seed up; `job` is any of theirs."""
    middle = median(seed.final_return for seed in seeds)
    return FirstRunResult(
        env_id=job.spec.env_id,
        command=command,
        environment=environment,
        spec=job.spec.model_dump(mode="json", exclude={"seed"}),
        hyperparameters=job.hyperparameters.model_dump(mode="json"),
        seeds=tuple(seeds),
        median_final_return=middle,
        median_wall_s=median(seed.wall_s for seed in seeds),
        met=middle >= TARGET_RETURN if job.spec.env_id.startswith("Hopper-") else None,
    )


def first_run_table(result: FirstRunResult) -> Table:
    """Lay the seeds out for people."""
    table = Table(title=f"{result.env_id}, what nitro train begins from", title_justify="left")
    for heading in (
        "",
        "first",
        "final",
        "best",
        "steps",
        "wall time",
        "steps/s",
        "AWS (projected)",
    ):
        table.add_column(heading)
    for seed in result.seeds:
        table.add_row(
            f"seed {seed.seed}",
            *(f"{value:.1f}" for value in (seed.first_return, seed.final_return, seed.best_return)),
            f"{seed.env_steps:,}",
            duration(seed.wall_s),
            f"{seed.steps_per_s:,.0f}",
            f"{seed.projected_usd:.4f} USD",
        )
    middle, wall = f"{result.median_final_return:.1f}", duration(result.median_wall_s)
    table.add_row("median", "", middle, "", "", wall, "", "")
    if result.met is not None:
        table.add_row(f"at least {TARGET_RETURN:,.0f}", "", "yes" if result.met else "NO")
    return table
