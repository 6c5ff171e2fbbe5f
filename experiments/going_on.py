"""Any experiment made of jobs, again with another training horizon."""

from dataclasses import replace

from experiments.experiment import Done, Experiment
from experiments.grid import Grid, Scale
from nitro.errors import CommandError
from shared.contracts.episode_rules import EpisodeRule
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.horizons import Horizon


def with_horizon(experiment: Experiment, horizon: Horizon) -> Experiment:
    """Return an experiment whose training episodes are as long as `horizon` says.

    Its results have a folder of their own, and its findings are those of the experiment.

    Raises:
        CommandError: Its work is not jobs. Its plan raises it where jobs differ in their horizons.
    """
    if experiment.task is not JobSpec:
        raise CommandError(f"--horizon: {experiment.name} trains no jobs; leave it out")
    episodes = EpisodeRule(horizon=horizon)

    def plan(scale: Scale, done: Done) -> Grid:
        grid = experiment.plan(scale, done)
        jobs = [cell.task for cell in grid.cells if isinstance(cell.task, JobSpec)]
        if len({job.episodes.horizon for job in jobs} - {None}) > 1:
            raise CommandError(f"--horizon: {experiment.name} compares horizons; leave it out")
        changed = {"episodes": episodes}
        cells = [replace(c, task=c.task.model_copy(update=changed)) for c in grid.cells]
        return Grid(cells=cells, left_out=grid.left_out)

    return replace(
        experiment,
        name=f"{experiment.name}-{horizon}",
        arguments=f"{experiment.name} --horizon {horizon}",
        title=f"{experiment.title}, horizon {horizon}",
        plan=plan,
    )
