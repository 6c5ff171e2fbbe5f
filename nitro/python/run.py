"""A run: a job's results and its policy."""

import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import gymnasium

from nitro.errors import CommandError
from nitro.local.own_environments import own_packages
from nitro.python.makers import Maker, maker_name
from nitro.python.pictures import Film, Picture
from nitro.runs.checkpoints import read_policy, usual_checkpoint
from nitro.runs.evaluate import EvaluationReport, evaluate_run
from nitro.runs.listing import check_state, list_runs
from nitro.runs.reading import find_run, read_run, training_return
from nitro.runs.summary import cost_text
from shared.contracts.checkpoint_rules import Which
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundLine
from shared.environments.building import make_environment
from shared.environments.variables import variable_differences
from shared.policy.numpy_policy import NumpyPolicy

if TYPE_CHECKING:
    import pandas


class Run:
    """The results of a job, as returned by `nitro.train` and `nitro.load`.

    Attributes:
        job: The job at the time of reading: its specification, status and progress.
        rounds: The record of each round, in order: plan, result, curvature and evaluation.
        cost_usd: The run's cost on AWS, projected if it ran on this machine.
        checkpoint: The checkpoint of the run's policy: `newest` or `best`.
    """

    def __init__(
        self,
        job: Job,
        *,
        rounds: Sequence[RoundLine],
        cost_usd: float,
        folder: Path | None,
        checkpoint: Which = "newest",
    ) -> None:
        self.job = job
        self.rounds = tuple(rounds)
        self.cost_usd = cost_usd
        self.checkpoint = checkpoint
        self._folder = folder

    def __repr__(self) -> str:
        rounds, status = self.job.progress.rounds, self.job.status
        best = max((mean for _, mean in self.evaluations), default=None)
        told = "" if best is None else f", best evaluation {best:.1f}"
        cost = cost_text(self.cost_usd, self.job.spec.stop)
        return f"<Run {self.job_id}: {status}, {rounds} rounds{told}, {cost}>"

    @property
    def job_id(self) -> str:
        """Name of the job, and of the run's folder."""
        return self.job.job_id

    @property
    def folder(self) -> Path:
        """The run's folder.

        Raises:
            CommandError: It is not on this machine.
        """
        if self._folder is None:
            raise CommandError(
                f"{self.job_id}: the run's files are at its API; copy its folder here, then call "
                "nitro.load(folder)"
            )
        return self._folder

    @property
    def returns(self) -> list[float | None]:
        """Mean return of the training episodes that ended in each round; None for no episode."""
        return [training_return(line) for line in self.rounds if line.result is not None]

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """Evaluations in order: the number of rounds learned from, and the mean return."""
        behind = self.job.spec.rounds_behind
        return [
            (behind(line.plan.round), fmean(line.evaluation.returns))
            for line in self.rounds
            if line.evaluation is not None and line.evaluation.returns
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rounds as a table, a row each: returns, steps, actors, score, seconds.

        `env_steps` is cumulative; `evaluation` is empty in rounds without an evaluation.

        Raises:
            CommandError: pandas is not installed.
        """
        from nitro.python.frames import rounds_frame

        return rounds_frame(self.rounds)

    @functools.cached_property
    def policy(self) -> NumpyPolicy:
        """The policy of the run's checkpoint, deterministic by its method `act`.

        `act` takes one observation or a batch from `environment`, and returns actions for its
        `step`: within the bounds, with choices numbered as in the action space.

        Raises:
            CommandError: There is no checkpoint, it is damaged, or it is not on this machine.
        """
        return read_policy(self.folder, self.checkpoint)[1]

    def environment(self, *, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Return a new environment with the policy's observations and raw rewards.

        It differs from `gymnasium.make`'s if the job names wrappers, if observations are images or
        have several axes, and in Atari games. Of several agents it is the first, and
        `unwrapped.others` are the rest: `shared.environments.agents.choose` sets the actions of
        all before each is stepped. The job's variables are set in this process. A
        warning names other variables that differ from the training.

        Raises:
            shared.environments.spaces.UnsupportedEnvironment: It is not registered here, or cannot
                be rendered as requested.
        """
        spec, described = self.job.spec, self.job.described_environment
        for difference in variable_differences(described.variables, spec.env_variables):
            warnings.warn(difference, stacklevel=2)
        return make_environment(spec.environment_ref, raw_rewards=True, render_mode=render_mode)

    def evaluate(self, episodes: int = 20, *, seed: int = 0) -> EvaluationReport:
        """Play episodes with the deterministic policy, in this process.

        Args:
            episodes: Number of episodes.
            seed: Equal seeds give equal episodes.

        Returns:
            `mean_return`, `std_return`, `returns` and more; printed, one line.

        Raises:
            CommandError: There is no checkpoint, or the environment fails.
        """
        return evaluate_run(self.folder, episodes=episodes, seed=seed, checkpoint=self.checkpoint)

    def plot(self, path: Path | str | None = None) -> Picture:
        """Plot return, actors, boosting score and cost per round; a notebook shows the picture.

        Args:
            path: A .png, .pdf or .svg to write; default: `plots/run.png` in the run's folder.

        Returns:
            Path of the picture.

        Raises:
            CommandError: No round is finished yet, or the file cannot be written.
        """
        from nitro.runs.drawing.picture import draw  # matplotlib takes a while to load

        return Picture(draw(read_run(self.folder), None if path is None else Path(path)))

    def video(self, *, episodes: int = 1, seed: int = 0) -> Film:
        """Film episodes of the deterministic policy, without a screen; a notebook plays the film.

        Returns:
            Path of the film, in the run's folder.

        Raises:
            CommandError: There is no checkpoint, or the environment cannot be rendered; says why.
        """
        report = evaluate_run(
            self.folder, episodes=episodes, seed=seed, checkpoint=self.checkpoint, video=True
        )
        return Film(str(report.video))


def load(
    run: str | Path,
    *,
    checkpoint: Which | None = None,
    runs_dir: str | Path = "runs",
    env: Maker | None = None,
) -> Run:
    """Return an earlier run, trained on this machine or copied to it.

    Args:
        run: Its folder, or its job's id.
        checkpoint: `newest`, or `best` for the policy with the best evaluation. Default: newest, or
            best if training ended at its target.
        runs_dir: Folder of the runs, for a job's id.
        env: The maker of its environment, if that is not registered.

    Raises:
        CommandError: There is no such run, or its files are damaged.
    """
    if checkpoint not in (None, "newest", "best"):
        raise CommandError(f"checkpoint: must be newest or best, got {checkpoint!r}")
    folder = find_run(str(run), Path(runs_dir))
    own_packages(None if env is None else [maker_name(env)], runs=[folder])
    return read(folder, checkpoint=checkpoint)


def load_runs(
    runs_dir: str | Path = "runs",
    *,
    env: str | None = None,
    state: str | None = None,
    tags: Sequence[str] = (),
    text: str | None = None,
) -> list[Run]:
    """Return the runs of a folder and its sub-folders, newest first, as `nitro runs list` does.

    Args:
        runs_dir: The folder.
        env: Only runs whose environment's name contains this.
        state: Only runs that are `finished`, `stopped`, `failed` or `unfinished`.
        tags: Only runs that have all of these.
        text: Only runs with this in their name, id, folder, environment or a tag.

    Raises:
        CommandError: There is no such state.
    """
    rows = list_runs(Path(runs_dir), env=env, state=check_state(state), tags=tags, text=text)
    return [read(Path(row.folder)) for row in rows]


def read(folder: Path, *, checkpoint: Which | None = None) -> Run:
    """Return the run that a folder on this machine holds."""
    found = read_run(folder)
    checkpoint = checkpoint or usual_checkpoint(found.job)
    return Run(
        found.job,
        rounds=found.rounds,
        cost_usd=found.cost_usd,
        folder=folder,
        checkpoint=checkpoint,
    )
