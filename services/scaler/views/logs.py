"""Log lines that name a job: from the local system's files, or from CloudWatch."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.off_loop import OffLoop
from services.scaler.recent import Recent
from shared.contracts.jobs import Job
from shared.contracts.views.files import LogLine, LogPage, LogSource

_TAIL_BYTES = 2 * 1024 * 1024
"""How much of a file's end is read."""
_LONGEST_LINE = 2000
_MOST_REQUESTS = 10
"""Requests to CloudWatch for one answer about one source."""
_FIRST_WINDOW_S = 60.0
_WIDENS = 8
"""Ratio of a CloudWatch window's length to the newer one beside it."""
_LATE_S = 60.0
"""How long after a job's end its lines may still arrive."""
_KEPT_S = 10.0
"""How long lines from CloudWatch are cached."""
_LONGEST_ANSWER = 1001
"""Newest lines kept of each log: one more than are shown, to know that there are more."""
_BEGINS = re.compile(r"^\d{4}-\d\d-\d\d[ T]")
"""The beginning of a log line; following lines without a time belong to it."""


class LogsError(RuntimeError):
    """The logs cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The newest lines of a log that name a job, in order."""

    lines: tuple[str, ...]
    truncated: bool
    """Whether earlier lines may be missing."""


class Logs(Protocol):
    """A place of logs."""

    @property
    def sources(self) -> tuple[LogSource, ...]:
        """The logs that exist."""

    async def tail(self, job: Job, source: LogSource) -> Tail:
        """Return the newest lines that name a job; raises `LogsError`."""


async def log_page(logs: Logs, job: Job, *, source: LogSource | None, limit: int) -> LogPage:
    """Return the newest lines that name a job: at most `limit` of all requested logs.

    Raises:
        LogsError: They cannot be read.
    """
    wanted = [each for each in logs.sources if source in (None, each)]
    share = max(1, limit // max(1, len(wanted)))
    found: list[LogLine] = []
    truncated = False
    for each in wanted:
        newest = await logs.tail(job, each)
        truncated = truncated or newest.truncated or len(newest.lines) > share
        texts = [text[:_LONGEST_LINE] for text in newest.lines[-share:]]
        found += [LogLine(source=each, text=text) for text in texts]
    return LogPage(job_id=job.job_id, sources=logs.sources, lines=tuple(found), truncated=truncated)


class NoLogs:
    """Logs that the scaler cannot read."""

    sources: tuple[LogSource, ...] = ()

    async def tail(self, job: Job, source: LogSource) -> Tail:
        """Return nothing."""
        return Tail(lines=(), truncated=False)


@dataclass(frozen=True, slots=True)
class FileLogs:
    """The local system's log files."""

    folder: Path
    threads: OffLoop

    sources: ClassVar[tuple[LogSource, ...]] = ("learner", "scaler", "actor")

    async def tail(self, job: Job, source: LogSource) -> Tail:
        """Return the lines that name a job, with the lines that belong to them."""
        return await self.threads.run(self._read, job, source)

    def _read(self, job: Job, source: LogSource) -> Tail:
        lines: deque[str] = deque(maxlen=_LONGEST_ANSWER)
        truncated = False
        for path in sorted(self.folder.glob(f"{source}*.log")):
            try:
                text, cut = _end_of(path)
            except OSError as error:
                raise LogsError(f"cannot read {path}: {error.strerror or error}") from error
            named = [*about(job.job_id, text.splitlines())]
            truncated = truncated or cut or len(lines) + len(named) > _LONGEST_ANSWER
            lines += named
        return Tail(lines=tuple(lines), truncated=truncated)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    lines: list[str]
    last: bool
    """Whether the window has no more."""


class CloudWatchLogs:
    """Log groups in CloudWatch, which reads from the oldest line on, so windows go back in time.

    All viewers of a job share what was read in the last 10 s, or before a failure.
    """

    def __init__(
        self,
        groups: Mapping[LogSource, str],
        client: Any,
        threads: OffLoop,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Read the group of each source, by a clock in Unix seconds."""
        self._groups = groups
        self._client = client
        self._now = now
        self._recent: Recent[tuple[str, LogSource, float, float | None], Tail] = Recent(
            get=lambda wanted: threads.run(self._read, wanted),
            fails_with=LogsError,
            ttl_s=_KEPT_S,
        )

    @classmethod
    def connect(cls, groups: Mapping[LogSource, str], threads: OffLoop, *, region: str) -> Self:
        """Return the logs in a region's groups; nothing is sent yet."""
        config = Config(connect_timeout=5.0, read_timeout=10.0, retries={"total_max_attempts": 3})
        client = boto3.client("logs", region_name=region, config=config)
        return cls(groups, client, threads)

    @property
    def sources(self) -> tuple[LogSource, ...]:
        """The logs with a known group."""
        return tuple(self._groups)

    async def tail(self, job: Job, source: LogSource) -> Tail:
        """Return the lines that name a job."""
        return await self._recent.of((job.job_id, source, job.created_at, job.finished_at))

    def _read(self, wanted: tuple[str, LogSource, float, float | None]) -> Tail:
        job_id, source, begin, finished_at = wanted
        end = _LATE_S + (self._now() if finished_at is None else finished_at)
        found: list[str] = []
        requests_left = _MOST_REQUESTS
        for window in windows(begin, end):
            lines: deque[str] = deque(maxlen=_LONGEST_ANSWER)
            whole = False
            for page in self._pages(job_id, source, window):
                requests_left -= 1
                lines += page.lines
                whole = page.last
                if not requests_left:
                    break
            if not whole:
                # Lines are missing between these and the newer ones, if there are any.
                return Tail(lines=tuple(found or lines), truncated=True)
            found = [*lines, *found]
            reached = window[0] <= int(begin * 1000)
            if len(found) >= _LONGEST_ANSWER or not requests_left:
                return Tail(lines=tuple(found[-_LONGEST_ANSWER:]), truncated=not reached)
        return Tail(lines=tuple(found), truncated=False)

    def _pages(self, job_id: str, source: LogSource, window_ms: tuple[int, int]) -> Iterator[_Page]:
        query: dict[str, object] = {
            "logGroupName": self._groups[source],
            "filterPattern": f'"{job_id}"',
            "startTime": window_ms[0],
            "endTime": window_ms[1],
        }
        while True:
            try:
                page = self._client.filter_log_events(**query)
            except (BotoCoreError, ClientError) as error:
                raise LogsError(f"cannot read {query['logGroupName']}: {error}") from error
            lines = [event["message"].rstrip("\n") for event in page["events"]]
            last = "nextToken" not in page
            yield _Page(lines=lines, last=last)
            if last:
                return
            query["nextToken"] = page["nextToken"]


def windows(begin: float, end: float) -> Iterator[tuple[int, int]]:
    """Yield windows from the newest to the oldest, each longer than the one before.

    Args:
        begin: Unix seconds, where the oldest one begins.
        end: Unix seconds, where the newest one ends.

    Yields:
        First and last millisecond of a window; no millisecond is in two.
    """
    first, last = int(begin * 1000), int(end * 1000)
    length = int(_FIRST_WINDOW_S * 1000)
    while last >= first:
        start = max(first, last - length + 1)
        yield start, last
        last, length = start - 1, length * _WIDENS


def about(job_id: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that name a job, each with the following lines that have no time."""
    named = re.compile(rf"(?<![a-z0-9-]){re.escape(job_id)}(?![a-z0-9-])")
    wanted = False
    for line in lines:
        if named.search(line):
            wanted = True
        elif _BEGINS.match(line):
            wanted = False
        if wanted:
            yield line


def _end_of(path: Path) -> tuple[str, bool]:
    """Return a file's end, and whether more is before it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace"), size > _TAIL_BYTES
