"""Telling a tracker of a run: of a folder at once, of a job as it goes on; each round once."""

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
"""Where runs go in a tracker unless the user says otherwise."""


class Telling:
    """One run told to one tracker."""

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
        # The tracker alone knows the rounds that another machine sent, and only their number.
        self._known = -1 if known is None else known

    def tell(self, lines: Sequence[RoundLine]) -> int:
        """Tell of what is over and was not told yet; return of how many rounds.

        A round that was made again since, as after lost checkpoints, is told again.

        Raises:
            CommandError: The tracker did not take one.
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
        """Say what the run came to, if it has ended, and let go of it.

        Raises:
            CommandError: The tracker did not take it.
        """
        with explained(self._to):
            self._tracker.finish(summary(job, cost_usd) if job.status in FINISHED else {})


@contextmanager
def told_to(
    tracker: str | None, job: Job, *, runs_dir: Path, note: Callable[[str], object]
) -> Iterator[Callable[[Snapshot], object]]:
    """Yield what tells a tracker of a job as it is now; at the end the run is let go of.

    Nobody's training ends because a tracker is away: `note` takes what went wrong, once, and
    nothing more is told. What was not told can be told later, from the run's record.
    """
    if tracker is None:
        yield lambda _: None
        return
    newest, telling = [job], list[Telling]()  # of one, and none once it has failed

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
    """Tell a tracker of a run's folder; return of how many rounds.

    Raises:
        CommandError: The tracker cannot be used.
    """
    telling = Telling(run.job, to, project=project, runs_dir=runs_dir)
    told = telling.tell(run.rounds)
    telling.finish(run.job, sum(line.amount_usd for line in run.ledger))
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
    """Tell a tracker of a job of an API; return of how many rounds.

    Args:
        client: The API.
        job_id: Which job.
        to: Which tracker.
        project: Where in it.
        runs_dir: Where it is noted how far the tracker has been told.
        to_the_end: Whether to go on until the job has ended.
        pause: Waits for so many seconds.

    Raises:
        CommandError: The tracker cannot be used, or the API not be reached.
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
