"""`nitro evaluate`: deterministic episodes with a run's newest policy, in this process."""

from pathlib import Path
from statistics import fmean, pstdev

from pydantic import BaseModel, ConfigDict
from rich.table import Table
from rich.text import Text

from functions.actor.rollout import RolloutError, evaluate_episode
from nitro.errors import EXIT_FAILED, CommandError
from nitro.report import read_job
from services.learner.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from shared import codec
from shared.artifacts import LocalArtifacts
from shared.contracts import RolloutTask
from shared.envs import UnsupportedEnvironment, make_environment
from shared.job_spec import EnvironmentRef
from shared.jobs import Job
from shared.policy import NumpyPolicy, PolicyError, load_policy
from shared.seeds import actor_seed


class EvaluationReport(BaseModel):
    """Episodes of one policy; the fields are the keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    job_id: str
    env_id: str
    policy_version: int
    """Policy updates behind it."""
    seed: int
    episodes: int
    mean_return: float
    std_return: float
    """Over the episodes, not of the mean."""
    min_return: float
    max_return: float
    mean_length: float
    returns: list[float]
    lengths: list[int]


def evaluate_run(folder: Path, *, episodes: int, seed: int) -> EvaluationReport:
    """Play episodes with the policy of a run's newest checkpoint.

    Equal seeds give equal episodes.

    Raises:
        CommandError: There is no checkpoint, it is damaged, or the environment fails.
    """
    job = read_job(folder)
    checkpoint = _newest(folder)
    try:
        payload = codec.decode(checkpoint.policy)
        policy = load_policy(payload.arrays, payload.metadata)
        return _play(
            job, policy, version=checkpoint.run.policy_version, episodes=episodes, seed=seed
        )
    except (codec.CodecError, PolicyError) as error:
        raise CommandError(f"{folder}: the newest checkpoint's policy: {error}") from error
    except (UnsupportedEnvironment, RolloutError) as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error


def _newest(folder: Path) -> Checkpoint:
    store = CheckpointStore(
        LocalArtifacts(folder.absolute().parent), folder.absolute().name, keep=1
    )
    try:
        checkpoint = store.latest()
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    if checkpoint is None:
        raise CommandError(f"{folder}: no checkpoint yet; the first comes after the first round")
    return checkpoint


def _play(
    job: Job, policy: NumpyPolicy, *, version: int, episodes: int, seed: int
) -> EvaluationReport:
    ref = EnvironmentRef(env_id=job.spec.env_id, env_kwargs=job.spec.env_kwargs)
    env = make_environment(ref)
    try:
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
                    seed=actor_seed(seed, mode="evaluate", round_index=version, actor_index=index),
                ),
                env,
                policy,
            )
            for index in range(episodes)
        ]
    finally:
        env.close()
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
    )


def evaluation_table(report: EvaluationReport) -> Table:
    """Lay a report out for people."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (
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
    ):
        table.add_row(name, Text(value))
    return table
