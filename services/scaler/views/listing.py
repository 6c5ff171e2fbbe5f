"""The list of jobs: filtered, sorted, page by page."""

from collections.abc import Callable
from dataclasses import dataclass

from services.scaler.book.book import Book
from services.scaler.launching.launches import Launches
from shared.contracts.jobs import Job, JobStatus
from shared.contracts.views.jobs import JobList, JobSort, JobSummary

MOST_LOOKED_AT = 1000
"""Most jobs that are read for one page, matching or not."""
_READ_AT_ONCE = 100
_KEYS: dict[str, Callable[[JobSummary], float | str | None]] = {
    "created": lambda job: job.created_at,
    "spent": lambda job: job.spent_usd,
    "return": lambda job: job.last_return,
    "round": lambda job: job.round,
    "name": lambda job: (job.name or job.job_id).casefold(),
    "status": lambda job: job.status,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """The jobs to list, and their order."""

    status: JobStatus | None = None
    tag: str | None = None
    text: str | None = None
    """Part of name, id, environment or a tag, in capitals or not."""
    sort: JobSort = "-created"
    limit: int = 50
    cursor: int | None = None
    """A position for newest first; for any other order, the number of jobs shown so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    found: list[tuple[int, JobSummary]]
    """Matching jobs with their positions."""
    last: int | None
    """Position of the oldest job that was read; None if there is no older one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """Lists jobs."""

    book: Book
    launches: Launches
    shown: Callable[[Job], Job]
    """Returns a job with its reason to wait."""

    def page(self, query: JobQuery) -> JobList:
        """Return one page."""
        if query.sort == "-created":
            return self._newest(query)
        first = query.cursor or 0
        upto = first + query.limit
        newest = self._look(query, before=None, most=MOST_LOOKED_AT)
        jobs = ordered([job for _, job in newest.found], query.sort)
        return JobList(
            jobs=tuple(jobs[first:upto]),
            next_cursor=str(upto) if upto < len(jobs) else None,
            truncated=newest.last is not None,
        )

    def _newest(self, query: JobQuery) -> JobList:
        look = self._look(query, before=query.cursor, most=query.limit + 1)
        shown = look.found[: query.limit]
        more = len(look.found) > query.limit
        after = shown[-1][0] if more else look.last
        return JobList(
            jobs=tuple(job for _, job in shown),
            next_cursor=None if after is None else str(after),
            truncated=not more and after is not None,
        )

    def _look(self, query: JobQuery, *, before: int | None, most: int) -> _Look:
        """Read jobs, newest first, until enough match or enough were read."""
        every = query.tag is None and not query.text and query.status is None
        size = min(_READ_AT_ONCE, most) if every else _READ_AT_ONCE
        found: list[tuple[int, JobSummary]] = []
        for _ in range(0, MOST_LOOKED_AT, size):
            read = self.book.rows(limit=size, before=before)
            for position, job in read:
                before = position
                in_state = query.status in (None, job.status)
                if in_state and matches(job, tag=query.tag, text=query.text):
                    found.append((position, self._as_now(job)))
            if len(read) < size:
                return _Look(found=found, last=None)
            if len(found) >= most:
                break
        return _Look(found=found, last=before)

    def _as_now(self, job: JobSummary) -> JobSummary:
        """Return a row with the state that only this process knows, if the job has not ended."""
        record = self.book.live(job.job_id)
        if record is None:
            return job
        return JobSummary.of(
            self.shown(record.job),
            reserved_usd=record.reserved_usd,
            actors_now=self.launches.flights.in_flight(only=job.job_id),
        )


def matches(job: JobSummary, *, tag: str | None, text: str | None) -> bool:
    """Whether a job has a tag, and a text in its name, id, environment or a tag."""
    if tag is not None and tag not in job.tags:
        return False
    wanted = (text or "").casefold()
    searched = (job.name or "", job.job_id, job.env_id, *job.tags)
    return any(wanted in what.casefold() for what in searched)


def ordered(jobs: list[JobSummary], sort: JobSort) -> list[JobSummary]:
    """Return jobs in order; jobs without a value come last, and equal ones keep their order."""
    key = _KEYS[sort.removeprefix("-")]
    known = [(value, job) for job in jobs if (value := key(job)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    return [job for _, job in known] + [job for job in jobs if key(job) is None]
