"""The recorded runs that a scheduler can practise on: of one environment, and long enough."""

from collections.abc import Sequence
from pathlib import Path

from nitro.errors import CommandError
from nitro.hints import Place
from nitro.runs.reading import Run, read_run
from shared.artifacts.store import JOB_FILE
from shared.contracts.scaling_spec import ActorRange

FEWEST_ROUNDS = 2
"""No line goes through fewer."""


def read_runs(folder: Path, env_id: str | None = None) -> list[Run]:
    """Read a run, or every run in a folder; of one environment.

    Args:
        folder: Of the run, or of the runs.
        env_id: Which environment's; None where there is only one.

    Raises:
        CommandError: There is none, one is damaged, or they are of several environments.
    """
    folders = [folder] if (folder / JOB_FILE).is_file() else sorted(folder.glob(f"*/{JOB_FILE}"))
    runs = [read_run(path if path.is_dir() else path.parent) for path in folders]
    trained = [run for run in runs if _num_rounds(run)]
    if not trained:
        raise CommandError(f"--runs {folder}: holds no run with a finished round")
    environments = sorted({run.job.spec.env_id for run in trained})
    if env_id is None and len(environments) > 1:
        one = Place().command("scheduler", "train", environments[0], "--runs", folder)
        raise CommandError(
            f"--runs {folder}: holds runs of {', '.join(environments)}, and learns from one of "
            f"them: name it, as in: {one}"
        )
    if env_id is not None and env_id not in environments:
        raise CommandError(f"--runs {folder}: {env_id} is none of {', '.join(environments)}")
    return [run for run in trained if env_id in (None, run.job.spec.env_id)]


def long_enough(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that a model can be fitted to.

    Raises:
        CommandError: There is none.
    """
    kept = [run for run in runs if _num_rounds(run) >= FEWEST_ROUNDS]
    if not kept:
        names = ", ".join(run.folder.name for run in runs)
        raise CommandError(f"--runs: none has {FEWEST_ROUNDS} finished rounds: {names}")
    return kept


def practised_range(runs: Sequence[Run]) -> ActorRange:
    """Return the numbers of actors between which the runs' jobs could choose, taken together.

    Where that is one number, the usual range: there would be nothing to learn to choose from.
    """
    ranges = [run.job.spec.actors for run in runs]
    together = ActorRange(min=min(r.min for r in ranges), max=max(r.max for r in ranges))
    return together if together.min < together.max else ActorRange()


def _num_rounds(run: Run) -> int:
    return sum(line.result is not None for line in run.rounds)
