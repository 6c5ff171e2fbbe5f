"""Following a job over REST until it ends."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from time import monotonic, sleep

from nitro.client.client import NitroClient
from nitro.client.errors import AWAY_OR_BUSY, ApiError, ApiUnreachableError
from shared.contracts.jobs import FINISHED, Job
from shared.contracts.rounds import RoundLine, RoundPlan, RoundRecord

_RECENT = 5
"""Number of rounds to measure the speed."""
PATIENCE_S = 90.0
"""During a deployment the API is away for up to a minute (docs/deploy.md), plus name resolution."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job's current state."""

    job: Job
    records: tuple[RoundRecord, ...]

    @property
    def plan(self) -> RoundPlan | None:
        """Plan of the newest round that launched actors."""
        plans = (record.plan for record in reversed(self.records))
        return next((plan for plan in plans if plan.stop is None), None)

    @property
    def finished_rounds(self) -> int:
        """Policy updates made."""
        return self.job.progress.rounds

    @property
    def training_return(self) -> float | None:
        """Mean return of the newest training episodes; None before the first ends."""
        for record in reversed(self.records):
            if record.result and record.result.episode_returns:
                return fmean(record.result.episode_returns)
        return None

    @property
    def steps_per_s(self) -> float | None:
        """Environment steps per second of wall time over the newest rounds."""
        timed = self._timed()
        seconds = sum(total for _, total in timed)
        return sum(steps for steps, _ in timed) / seconds if seconds > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Seconds to the job's last round; None before the first ends.

        Remaining rounds are assumed to take as long as the newer half of the finished rounds. That
        estimate changes slowly, and soon excludes the slow first round.
        """
        results = [record.result for record in self.records if record.result]
        if not results:
            return None
        newer = results[max(1, len(results) // 2) :] or results
        stop, progress = self.job.spec.stop, self.job.progress
        remaining = max(0, stop.max_rounds - self.finished_rounds)
        if stop.max_env_steps is not None:
            steps_left = max(0, stop.max_env_steps - progress.env_steps)
            per_round = fmean(result.env_steps for result in newer)
            remaining = min(remaining, math.ceil(steps_left / max(1.0, per_round)))
        return remaining * fmean(result.timing.total_s for result in newer)

    def _timed(self) -> list[tuple[int, float]]:
        results = [record.result for record in self.records if record.result]
        return [(result.env_steps, result.timing.total_s) for result in results[-_RECENT:]]


class RoundFeed:
    """A job's rounds; only those that can still change are fetched again."""

    def __init__(self, client: NitroClient, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._settled: list[RoundRecord] = []
        self._cursor: str | None = None

    def fetch(self) -> tuple[RoundRecord, ...]:
        """Return all rounds so far, in order, followed by the plans that ended the job."""
        records: list[RoundRecord] = []
        cursor = self._cursor
        while True:
            page = self._client.rounds(self._job_id, cursor=cursor)
            records += [*page.rounds, *page.endings]
            cursor = page.next_cursor
            if cursor is None:
                return (*self._settled, *records)
            # A round's bill is final when all of its actors have ended, too. Then nothing of it is
            # reserved; counts of launches are missing where no function was launched.
            if all(record.result and not record.reserved_usd for record in records):
                self._settled += records
                self._cursor, records = cursor, []


class Patience:
    """Bears with an API that is away, for some time.

    The time is counted from the first failure, not from the last answer: a suspended process wakes
    with dead connections, but has not retried yet.
    """

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self._seconds = seconds
        self._failing_since: float | None = None

    @contextmanager
    def bearing(self) -> Iterator[None]:
        """Suppress the errors of an API that is away; raise them after too long."""
        try:
            yield
        except (ApiUnreachableError, ApiError) as error:
            if isinstance(error, ApiError) and error.problem.status not in AWAY_OR_BUSY:
                raise
            if self._failing_since is None:
                self._failing_since = monotonic()
            if monotonic() - self._failing_since > self._seconds:
                raise
        else:
            self._failing_since = None


def follow(
    client: NitroClient,
    job_id: str,
    *,
    check: Callable[[], None],
    pause: Callable[[float], object] = sleep,
    every_s: float = 0.5,
    patience_s: float = PATIENCE_S,
) -> Iterator[Snapshot]:
    """Yield the job's states until it has finished; the last one is finished.

    Args:
        client: The API.
        job_id: Which job.
        check: Called before every poll; raises if polling is pointless.
        pause: Waits for at most the given seconds between two polls.
        every_s: Pause between two polls.
        patience_s: How long to retry an API that does not answer or is unavailable.

    Raises:
        ApiUnreachableError: The API did not answer for `patience_s`.
        ApiError: It refused, or was unavailable for `patience_s`.
    """
    feed, patience = RoundFeed(client, job_id), Patience(patience_s)
    while True:
        check()
        snapshot: Snapshot | None = None
        with patience.bearing():
            job = client.get(job_id)  # first, so that a finished job's rounds are complete
            snapshot = Snapshot(job, feed.fetch())
        if snapshot is not None:
            yield snapshot
            if snapshot.job.status in FINISHED:
                return
        pause(every_s)


def line_of(record: RoundRecord) -> RoundLine:
    """Return a round in the form of a run's record, without its curvature, which the API lacks."""
    evaluation = None if record.result is None else record.result.evaluation
    return RoundLine(plan=record.plan, result=record.result, curvature=None, evaluation=evaluation)


def stop_unfinished(client: NitroClient, job_id: str) -> None:
    """Ask a job to stop after its current update, unless it has already ended.

    Raises:
        ApiError: The API refused for another reason.
    """
    try:
        client.stop(job_id)
    except ApiError:
        if client.get(job_id).status not in FINISHED:
            raise
