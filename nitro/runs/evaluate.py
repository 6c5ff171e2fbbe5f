"""`nitro evaluate`: deterministic episodes with a run's policy, in this process.

There is no watchdog: the user waits here, and can press Ctrl-C.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, pstdev

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode
from nitro.errors import EXIT_FAILED, CommandError
from nitro.runs.checkpoints import read_policy
from nitro.runs.drawing.video import drawing_environment, recorded, video_suffix
from nitro.runs.reading import read_job
from nitro.tables import facts_table
from shared.contracts.checkpoint_rules import Which
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.jobs import Job
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import Env, make_environment
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.variables import variable_differences
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.seeds import actor_seed


class EvaluationReport(BaseModel):
    """Episodes of one policy; the fields are the keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    job_id: str
    env_id: str
    policy_version: int
    """Number of policy updates before it."""
    seed: int
    episodes: int
    mean_return: float
    std_return: float
    """Standard deviation over the episodes, not of the mean."""
    min_return: float
    max_return: float
    mean_length: float
    returns: list[float]
    lengths: list[int]
    dropped_episodes: int
    """Discarded earlier episodes with a non-finite number."""
    video: str | None
    """The film, if requested."""
    differences: tuple[str, ...] = ()
    """Simulator variables whose values differ from training."""

    def __str__(self) -> str:
        return (
            f"{self.env_id}: return {self.mean_return:.1f} ± {self.std_return:.1f} "
            f"({self.min_return:.1f} to {self.max_return:.1f}) over {self.episodes} episodes, "
            f"policy after {self.policy_version} updates"
        )


def evaluate_run(
    folder: Path,
    *,
    episodes: int,
    seed: int,
    video: bool = False,
    checkpoint: Which | None = None,
) -> EvaluationReport:
    """Play episodes with the policy of one of a run's checkpoints.

    Equal seeds give equal episodes. They differ from the evaluation episodes of a job with that
    seed.

    Args:
        folder: The run's folder.
        episodes: Number of episodes.
        seed: Determines all episodes.
        video: Whether to film the episodes into the run's `videos/`.
        checkpoint: The policy's checkpoint; None selects the default.

    Raises:
        CommandError: No episode is requested, the checkpoint is missing or damaged, the
            environment fails, or a film is impossible.
    """
    if episodes < 1:
        raise CommandError(f"episodes: must be 1 or more, got {episodes}")
    job = read_job(folder)
    version, policy = read_policy(folder, checkpoint)
    path = _film_path(folder, version, video_suffix()) if video else None
    return _played(job, policy, version=version, episodes=episodes, seed=seed, video=path)


def film_run(folder: Path) -> Path:
    """Film the first ten seconds of an episode of a run's default policy as a GIF.

    Raises:
        CommandError: As for `evaluate_run`.
    """
    job = read_job(folder)
    version, policy = read_policy(folder)
    path = _film_path(folder, version, ".gif")
    _played(job, policy, version=version, episodes=1, seed=0, video=path)
    return path


def _film_path(folder: Path, version: int, suffix: str) -> Path:
    return folder / "videos" / f"policy-{version:06}{suffix}"


def _played(
    job: Job, policy: NumpyPolicy, *, version: int, episodes: int, seed: int, video: Path | None
) -> EvaluationReport:
    try:
        return _play(job, policy, version=version, episodes=episodes, seed=seed, video=video)
    except RolloutError as error:
        if isinstance(error.__cause__, CommandError):
            raise error.__cause__ from error  # a film is impossible
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error
    except UnsupportedEnvironment as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error


def _play(
    job: Job, policy: NumpyPolicy, *, version: int, episodes: int, seed: int, video: Path | None
) -> EvaluationReport:
    ref = job.spec.environment_ref
    with _opened(ref, video) as env:
        played = [
            evaluate_episode(
                RolloutTask(
                    mode="evaluate",
                    job_id=job.job_id,
                    round=version,
                    attempt=0,
                    actor_index=index,
                    policy_version=version,
                    env=ref,
                    steps=1,
                    seed=actor_seed(seed, mode="later", round_index=version, actor_index=index),
                ),
                env,
                policy,
            )
            for index in range(episodes)
        ]
    returns = [episode.episode_return for episode in played]
    lengths = [episode.length for episode in played]
    return EvaluationReport(
        job_id=job.job_id,
        env_id=ref.env_id,
        policy_version=version,
        seed=seed,
        episodes=episodes,
        mean_return=fmean(returns),
        std_return=pstdev(returns),
        min_return=min(returns),
        max_return=max(returns),
        mean_length=fmean(lengths),
        returns=returns,
        lengths=lengths,
        dropped_episodes=sum(episode.dropped_episodes for episode in played),
        video=None if video is None else str(video),
        differences=variable_differences(
            job.described_environment.variables, job.spec.env_variables
        ),
    )


@contextlib.contextmanager
def _opened(ref: EnvironmentRef, video: Path | None) -> Iterator[Env]:
    """Yield the environment; with a path, record a film there."""
    if video is None:
        with contextlib.closing(make_environment(ref, raw_rewards=True)) as env:
            yield env
        return
    with (
        contextlib.closing(drawing_environment(ref)) as env,
        recorded(env, video) as recording,
    ):
        yield recording


def evaluation_table(report: EvaluationReport) -> Table:
    """Format a report for people."""
    facts = [
        ("job", report.job_id),
        ("environment", report.env_id),
        ("policy", f"after {report.policy_version} updates, deterministic"),
        ("episodes", f"{report.episodes} (seed {report.seed})"),
        (
            "return",
            f"{report.mean_return:.1f} ± {report.std_return:.1f} (mean ± std over episodes)",
        ),
        ("range", f"{report.min_return:.1f} to {report.max_return:.1f}"),
        ("length", f"{report.mean_length:.1f} steps"),
    ]
    if report.dropped_episodes:
        facts.append(("dropped", f"{report.dropped_episodes} episodes that were not finite"))
    if report.differences:
        facts.append(("differs", "\n".join(report.differences)))
    if report.video:
        facts.append(("video", report.video))
    return facts_table(facts)
