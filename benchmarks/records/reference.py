"""What a reference run leaves behind: the seeds' returns, and their mean beside published ones."""

from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, pstdev

from pydantic import JsonValue
from rich.table import Table

from benchmarks.environment import Environment
from benchmarks.records.published_scores import CLEANRL_PPO, PublishedScore
from nitro.runs.reading import Run
from shared.contracts.jobs import Job
from shared.contracts.message import Count, Message, NonNegativeFloat, Number, PositiveInt

LAST_EPISODES = 100
"""Training episodes whose returns are averaged."""
_CURVE_POINTS = 50


class SeedResult(Message):
    """What became of one seed."""

    seed: Count
    job_id: str
    env_steps: PositiveInt
    episodes: Count
    """Training episodes that ended in the run."""
    final_return: Number
    """Mean of the last 100 training episodes, raw rewards, sampled actions. Where the horizon cuts
    episodes that would go on, `evaluation_return`: a part of an episode is no return."""
    evaluation_return: Number | None
    """Mean of the episodes with the last policy's most likely actions."""
    steps_per_s: NonNegativeFloat
    """Over the rounds' wall time; a seed that was interrupted counts its rounds only."""
    curve: tuple[tuple[PositiveInt, Number], ...]
    """Environment steps and the return then: as `final_return`, of the last 100 episodes or of an
    evaluation."""


class PeerSeed(Message):
    """What Stable-Baselines3 made of one seed with the same hyper-parameters."""

    seed: Count
    final_return: Number
    """As `SeedResult.final_return`."""
    episodes: Count
    about: dict[str, str]
    """Versions."""


class ReferenceResult(Message):
    """One environment's seeds beside what is published."""

    env_id: str
    command: str
    environment: Environment
    spec: dict[str, JsonValue]
    """What every seed was asked for, the seed aside."""
    hyperparameters: dict[str, JsonValue]
    """The full set."""
    seeds: tuple[SeedResult, ...]
    mean: Number
    std: NonNegativeFloat
    """Over the seeds, with their number below it."""
    published: PublishedScore | None
    peer: tuple[PeerSeed, ...]
    """The same seeds of Stable-Baselines3, if they were trained."""
    met: bool | None
    """Whether the mean is at least the published mean less its deviation, or the peer's where
    nothing is published; None without either, and where training episodes are cut."""


def seed_result(run: Run) -> SeedResult:
    """Sum a finished run up.

    Raises:
        RuntimeError: No training episode ended, or they are cut and none was evaluated.
    """
    results = [line.result for line in run.rounds if line.result is not None]
    steps = [0, *accumulate(result.env_steps for result in results)]
    returns: list[float] = []
    trained, evaluated = [], []
    for result, env_steps in zip(results, steps[1:], strict=True):
        returns += result.episode_returns
        if returns:
            trained.append((env_steps, fmean(returns[-LAST_EPISODES:])))
    for num_rounds, evaluation in run.evaluations:
        if num_rounds and evaluation.returns:
            evaluated.append((steps[num_rounds], fmean(evaluation.returns)))
    curve = evaluated if cuts_episodes(run.job) else trained
    if not curve:
        raise RuntimeError(f"{run.folder}: no whole episode ended, so there is no return")
    stride = max(1, len(curve) // _CURVE_POINTS)
    return SeedResult(
        seed=run.job.spec.seed,
        job_id=run.job.job_id,
        env_steps=steps[-1],
        episodes=len(returns),
        final_return=curve[-1][1],
        evaluation_return=evaluated[-1][1] if evaluated else None,
        steps_per_s=steps[-1] / sum(result.timing.total_s for result in results),
        curve=tuple(reversed(curve[::-stride])),
    )


def cuts_episodes(job: Job) -> bool:
    """Return whether training episodes may be cut before the environment ends them."""
    limit = job.described_environment.max_episode_steps
    fragment = job.spec.steps_of(job.spec.actors.max) // job.spec.envs_per_actor
    cut_at = job.spec.episodes.cut_at if job.continues_episodes else fragment
    return cut_at is not None and (limit is None or cut_at < limit)


def summed_up(
    job: Job,
    seeds: Sequence[SeedResult],
    peer: Sequence[PeerSeed],
    *,
    command: str,
    environment: Environment,
) -> ReferenceResult:
    """Put the seeds of one environment beside what is published.

    Args:
        job: Any of the seeds'.
        seeds: At least one.
        peer: The peer's; may be empty.
        command: Repeats the runs.
        environment: Machine and libraries.
    """
    returns = [seed.final_return for seed in seeds]
    mean, std = fmean(returns), pstdev(returns)
    published = CLEANRL_PPO.get(job.spec.env_id) if job.spec.algorithm == "ppo" else None
    yardstick = (published.mean, published.std) if published else mean_and_std(peer)
    if cuts_episodes(job):  # deterministic episodes are no match for sampled ones
        yardstick = None
    return ReferenceResult(
        env_id=job.spec.env_id,
        command=command,
        environment=environment,
        spec=job.spec.model_dump(mode="json", exclude={"seed"}),
        hyperparameters=job.hyperparameters.model_dump(mode="json"),
        seeds=tuple(seeds),
        mean=mean,
        std=std,
        published=published,
        peer=tuple(peer),
        met=None if yardstick is None else mean >= yardstick[0] - yardstick[1],
    )


def mean_and_std(seeds: Sequence[SeedResult | PeerSeed]) -> tuple[float, float] | None:
    """Return mean and deviation over the seeds, with their number below it; None without any."""
    returns = [seed.final_return for seed in seeds]
    return (fmean(returns), pstdev(returns)) if returns else None


def reference_table(result: ReferenceResult) -> Table:
    """Lay the seeds out for people, what is published below them."""
    title = f"{result.env_id}, {result.spec['algorithm']}, preset {result.spec['preset']}"
    table = Table(title=title, title_justify="left")
    for heading in ("", "return", "deterministic", "steps", "steps/s"):
        table.add_column(heading)
    for seed in result.seeds:
        evaluation = seed.evaluation_return
        table.add_row(
            f"seed {seed.seed}",
            f"{seed.final_return:.1f}",
            "-" if evaluation is None else f"{evaluation:.1f}",
            f"{seed.env_steps:,}",
            f"{seed.steps_per_s:,.0f}",
        )
    table.add_row("mean ± std", f"{result.mean:.1f} ± {result.std:.1f}", "", "", "")
    if (peer := mean_and_std(result.peer)) is not None:
        table.add_row(
            f"SB3, {len(result.peer)} seeds", f"{peer[0]:.1f} ± {peer[1]:.1f}", "", "", ""
        )
    if (published := result.published) is not None:
        text = f"{published.mean:.1f} ± {published.std:.1f}"
        table.add_row("CleanRL", text, "", f"{published.steps:,}", "")
    if result.met is not None:
        table.add_row("at least mean - std", "yes" if result.met else "NO", "", "", "")
    return table
