"""Logs a run in a tracker, each round once: a folder at once, a job while it trains."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.client.follow import Snapshot, follow, line_of
from nitro.client.naming import find_job
from nitro.errors import CommandError
from nitro.hints import Place
from nitro.runs.reading import Run
from nitro.tracking.metrics import TrackedRound, TrackedRun, summary, tracked_rounds
from nitro.tracking.progress import ToldRounds
from nitro.tracking.tracker import Tracker, explained, open_tracker
from shared.contracts.jobs import FINISHED, Job
from shared.contracts.rounds import RoundLine

PROJECT = "nitro"
"""Default project in a tracker."""


class Telling:
    """The logging of one run in one tracker."""

    def __init__(self, job: Job, to: str, *, project: str, runs_dir: Path) -> None:
        """Open the run in the tracker.

        Raises:
            CommandError: The tracker cannot be used.
        """
        self._to = to
        self._told = ToldRounds(runs_dir, job.job_id, to, project)
        with explained(to):
            self._tracker: Tracker = open_tracker(to, TrackedRun.of(job), project=project)
            known = self._tracker.last_round
        # Only the tracker knows the rounds that another machine sent, and only their numbers.
        self._known = -1 if known is None else known

    def tell(self, lines: Sequence[RoundLine]) -> int:
        """Log finished rounds that were not logged yet; return their number.

        A repeated round, as after lost checkpoints, is logged again.

        Raises:
            CommandError: The tracker refused a round.
        """
        rounds = 0
        for new in tracked_rounds(lines):
            if not self._is_new(new):
                continue
            with explained(self._to):
                self._tracker.log(new.index, new.metrics)
            self._told.note(new)
            rounds += not new.is_ending
        return rounds

    def _is_new(self, new: TrackedRound) -> bool:
        if new in self._told:
            return False
        return new.is_ending or new.index > self._known or self._told.has_round(new.index)

    def finish(self, job: Job, cost_usd: float) -> None:
        """Log the run's results, if it has ended, and close it.

        Raises:
            CommandError: The tracker refused them.
        """
        with explained(self._to):
            self._tracker.finish(summary(job, cost_usd) if job.status in FINISHED else {})


@contextmanager
def told_to(
    tracker: str | None, job: Job, *, runs_dir: Path, note: Callable[[str], object]
) -> Iterator[Callable[[Snapshot], object]]:
    """Yield a function that logs a job's current state; close the run at the end.

    A failing tracker never ends the training: `note` gets the error once, and logging stops. The
    missing rounds can be logged later from the run's record.
    """
    if tracker is None:
        yield lambda _: None
        return
    newest, telling = [job], list[Telling]()  # one element; empty after a failure

    @contextmanager
    def noted() -> Iterator[None]:
        try:
            yield
        except CommandError as error:
            telling.clear()
            later = Place(runs_dir=runs_dir).command("track", job.job_id, "--to", tracker)
            note(f"{error}; the job goes on. Log it later: {later}")

    def tell(snapshot: Snapshot) -> None:
        newest[0] = snapshot.job
        with noted():
            for each in telling:
                each.tell([line_of(record) for record in snapshot.records])

    with noted():
        telling.append(Telling(job, tracker, project=PROJECT, runs_dir=runs_dir))
    try:
        yield tell
    finally:
        with noted():
            for each in telling:
                each.finish(newest[0], newest[0].spent_usd)


def track_run(run: Run, to: str, *, project: str, runs_dir: Path) -> int:
    """Log a run's folder in a tracker; return the number of logged rounds.

    Raises:
        CommandError: The tracker cannot be used.
    """
    telling = Telling(run.job, to, project=project, runs_dir=runs_dir)
    told = telling.tell(run.rounds)
    telling.finish(run.job, run.cost_usd)
    return told


def track_job(
    client: NitroClient,
    job_id: str,
    to: str,
    *,
    project: str,
    runs_dir: Path,
    to_the_end: bool,
    pause: Callable[[float], object],
) -> int:
    """Log an API's job in a tracker; return the number of logged rounds.

    Args:
        client: The API.
        job_id: The job.
        to: The tracker.
        project: The tracker's project.
        runs_dir: Folder of runs, which records the logged rounds.
        to_the_end: Whether to continue until the job has ended.
        pause: Waits for the given seconds.

    Raises:
        CommandError: The tracker is unusable, or the API is unreachable.
    """
    job_id = find_job(client, job_id)
    telling = Telling(client.get(job_id), to, project=project, runs_dir=runs_dir)
    told = 0
    snapshot: Snapshot | None = None
    try:
        for snapshot in _looks(client, job_id, to_the_end=to_the_end, pause=pause):
            told += telling.tell([line_of(record) for record in snapshot.records])
    finally:
        if snapshot is not None:
            telling.finish(snapshot.job, snapshot.job.spent_usd)
    return told


def _looks(
    client: NitroClient, job_id: str, *, to_the_end: bool, pause: Callable[[float], object]
) -> Iterator[Snapshot]:
    for snapshot in follow(client, job_id, check=lambda: None, pause=pause, every_s=2.0):
        yield snapshot
        if not to_the_end:
            return
