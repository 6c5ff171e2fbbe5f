"""Reading a run's folder: its job, its rounds and its bill, also during the run."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import typer
from pydantic import ValidationError

from nitro.errors import CommandError
from shared.artifacts.store import COST_FILE, JOB_FILE, LEDGER_FILE, ROUNDS_FILE
from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.jobs import Job, JobProgress, JobStatus
from shared.contracts.message import Message
from shared.contracts.rounds import EvaluationResult, RoundLine
from shared.contracts.views.jobs import JobSummary

M = TypeVar("M", bound=Message)
_MOST_NAMED = 5
"""Number of runs to suggest if the requested one is missing."""


def training_return(line: RoundLine) -> float | None:
    """Return the mean return of the training episodes that ended in a round; None without any."""
    returns = line.result.episode_returns if line.result else ()
    return fmean(returns) if returns else None


@dataclass(frozen=True, slots=True)
class Run:
    """The contents of a run's folder."""

    folder: Path
    job: Job
    rounds: tuple[RoundLine, ...]
    """Rounds in order, each once."""
    ledger: tuple[LedgerLine, ...]

    @property
    def evaluations(self) -> list[tuple[int, EvaluationResult]]:
        """Evaluations in order, each with its policy's number of learned rounds."""
        behind = self.job.spec.rounds_behind
        return [
            (behind(line.plan.round), line.evaluation) for line in self.rounds if line.evaluation
        ]

    @property
    def progress(self) -> JobProgress:
        """Progress by the recorded rounds: the job's file is from its start until it has ended."""
        results = [line.result for line in self.rounds if line.result]
        means = [e.mean_return for _, e in self.evaluations if e.mean_return is not None]
        return JobProgress(
            rounds=len(results),
            env_steps=sum(result.env_steps for result in results),
            last_return=means[-1] if means else None,
            best_return=max(means, default=None),
        )

    @property
    def cost_usd(self) -> float:
        """The recorded bill."""
        return sum(line.amount_usd for line in self.ledger)

    def update(self, round_index: int) -> int:
        """Return a round's position among the updates: its number, but at most the last position.

        With overlap, the last rounds only end the job: their numbers exceed the number of updates.
        """
        last = self.rounds[-1].plan if self.rounds else None
        if last is not None and last.stop is not None:
            return min(round_index, self.job.spec.rounds_behind(last.round))
        return round_index

    @property
    def stop(self) -> str:
        """Why the run ended, or its status until then."""
        planned = self.rounds[-1].plan.stop if self.rounds else None
        return planned or self.job.stop_reason or self.job.status


def find_run(run: str, runs_dir: Path, option: str = "RUN") -> Path:
    """Return the folder of a run, named by path or job id, or by a prefix of either.

    Args:
        run: Its name.
        runs_dir: Folder of runs that are named by job id.
        option: The option's name, for messages.

    Raises:
        CommandError: There is no such run, or the prefix is ambiguous; lists the candidates.
    """
    for folder in (Path(run), runs_dir / run):
        with contextlib.suppress(OSError):  # the name is too long, or access is denied
            if (folder / JOB_FILE).is_file():
                return folder
    begun = Path(run)
    within = runs_dir if begun.parent == Path() else begun.parent
    # For a path, search only its own folder: a whole disk may be below it.
    folders = run_folders(within) if within == runs_dir else _inside(within)
    known = [path / JOB_FILE for path in folders if (path / JOB_FILE).is_file()]
    newest = [file.parent for file in sorted(known, key=_changed_at, reverse=True)]
    matches = [folder for folder in newest if begun.name and folder.name.startswith(begun.name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(sorted(folder.name for folder in matches))
        raise CommandError(f"{option}: {run!r} matches several runs, use a longer prefix: {names}")
    raise CommandError(f"{option}: no run at {run!r}, nor in {within}{_newest_of(newest)}")


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0


def _newest_of(folders: Sequence[Path]) -> str:
    if not folders:
        return ", which has none"
    names = ", ".join(folder.name for folder in folders[:_MOST_NAMED])
    more = f" and {len(folders) - _MOST_NAMED} more" if len(folders) > _MOST_NAMED else ""
    return f"; the newest there are {names}{more}"


def is_here(run: str, runs_dir: Path) -> bool:
    """Whether `find_run` finds a run's folder."""
    try:
        find_run(run, runs_dir)
    except CommandError:
        return False
    return True


def distinct_runs(runs: Sequence[str], find: Callable[[str], Path]) -> list[Path]:
    """Return the folders of several runs.

    Args:
        runs: Their names.
        find: Returns a run's folder.

    Raises:
        CommandError: A run is missing, or is named twice.
    """
    folders: list[Path] = []
    for run in runs:
        folder = find(run)
        if any(folder.samefile(other) for other in folders):
            raise CommandError(f"RUN: {run!r} names {folder.name}, which is named already")
        folders.append(folder)
    return folders


def run_folders(runs_dir: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder and its sub-folders, except for hidden ones."""
    for folder, inside, files in os.walk(runs_dir):
        # A folder without its job file is a damaged run.
        if {JOB_FILE, ROUNDS_FILE} & {*files}:
            inside.clear()
            yield Path(folder)
        else:
            inside[:] = [name for name in inside if not name.startswith(".")]


def readable_jobs(runs_dir: Path) -> list[tuple[Path, Job]]:
    """Return every run's folder and job, newest first; unreadable runs are reported on stderr."""
    found: list[tuple[Path, Job]] = []
    for folder in run_folders(runs_dir):
        try:
            found.append((folder, read_job(folder)))
        except CommandError as error:
            typer.echo(f"skipped {error}", err=True)
    return sorted(found, key=lambda pair: pair[1].created_at, reverse=True)


def read_run(folder: Path) -> Run:
    """Read a run's folder.

    An incomplete last line, left by a killed learner, is ignored. A round that was repeated after a
    resume counts once, as it was last written; its actors were paid twice.

    Raises:
        CommandError: The folder is not a run, or a file in it is damaged; names file and line.
    """
    rounds = {line.plan.round: line for line in _lines(folder / ROUNDS_FILE, RoundLine)}
    return Run(
        folder=folder,
        job=read_job(folder),
        rounds=tuple(rounds[key] for key in sorted(rounds)),
        ledger=tuple(_lines(folder / LEDGER_FILE, LedgerLine)),
    )


def read_job(folder: Path) -> Job:
    """Read a run's job.

    Raises:
        CommandError: The folder is not a run, or its job file is damaged.
    """
    return _read(folder / JOB_FILE, Job)


def read_cost(folder: Path) -> JobCost | None:
    """Read a run's cost, without its ledger; None if its learner has not written it.

    Raises:
        CommandError: The bill is damaged.
    """
    path = folder / COST_FILE
    return _read(path, JobCost) if path.exists() else None


class RunFolders:
    """The read-only part of `nitro.client.client.NitroClient`, for a folder of runs."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir

    def every_job(self, *, status: JobStatus | None = None) -> Iterator[JobSummary]:
        """Yield summaries of all jobs, newest first; unreadable ones are reported on stderr."""
        jobs = (JobSummary.of(job) for _, job in readable_jobs(self._runs_dir))
        yield from (job for job in jobs if status in (None, job.status))

    def get(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            CommandError: There is no such run, or its file is damaged.
        """
        return read_job(find_run(job_id, self._runs_dir))

    def cost(self, job_id: str) -> JobCost | None:
        """Return a job's bill; None if its learner ended before it wrote one.

        Raises:
            CommandError: There is no such run, or its bill is damaged.
        """
        folder = find_run(job_id, self._runs_dir)
        cost = read_cost(folder)
        return cost and cost.model_copy(update={"lines": read_run(folder).ledger})


def _read(path: Path, kind: type[M]) -> M:
    try:
        return kind.read(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror}); is this a run?") from error
    except ValidationError as error:
        raise CommandError(f"{path}: {_first(error)}; written by another version?") from error


def _lines(path: Path, kind: type[M]) -> Iterator[M]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"{path}: cannot be read: {error.strerror}") from error
    texts = raw.split(b"\n")
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            yield kind.read(text)
        except ValidationError as error:
            if number == len(texts):  # the last piece has no final newline
                return
            raise CommandError(f"{path}, line {number}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    details = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in details["loc"])
    return f"{where}: {details['msg']}" if where else details["msg"]


def series(run: Run, value: Callable[[RoundLine], float | None]) -> tuple[list[int], list[float]]:
    """Return updates and values, without missing values."""
    pairs = [
        (run.update(line.plan.round), found)
        for line in run.rounds
        if (found := value(line)) is not None
    ]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
