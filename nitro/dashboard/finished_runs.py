"""A read-only scaler for folders of runs: the same API and page, without a system.

Its store is a temporary database. A run's rounds and bill are loaded at the first request for them.
The operator's token is given to nobody, so nothing can be changed.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI
from pydantic import SecretStr

from nitro.errors import CommandError
from nitro.hints import Place
from nitro.local.ports import LOOPBACK
from nitro.runs.reading import Run, read_cost, read_run, readable_jobs
from services.scaler.api.connection import BoundedConnection
from services.scaler.app import create_app
from services.scaler.book.attempts import PlannedAttempt, RoundEntry
from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import StoreError
from services.scaler.settings import Settings
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import FINISHED, Job
from shared.contracts.rounds import LaunchCounts, RoundLine
from shared.service.serving import keep_exit_code, listen

_LEASE = "folder"
_AT_ONCE = 25
"""Rounds and ledger lines per transaction."""
_NOTHING_KNOWN = LaunchCounts(requested=0, succeeded=0, failed=0, reissued=0, throttled=0)
"""A run's record has no launches, so the page shows none."""
_NOBODY = f"{LOOPBACK}:1"
"""An address at which neither cache nor Lambda answers."""


class RunFolderBook(Book):
    """A book that loads each run from its folder at the first request."""

    def __init__(self, path: Path, folders: Mapping[str, Path]) -> None:
        """Open an empty database.

        Args:
            path: The file of the database.
            folders: The run's folder of each job in the book.
        """
        super().__init__(SqliteTable(path), now=time.time)
        self._unread = dict(folders)
        self._reading = threading.Lock()

    def round(self, job_id: str, round_index: int) -> RoundEntry | None:
        """Return one round."""
        self._read_folder(job_id)
        return super().round(job_id, round_index)

    def last_round(self, job_id: str) -> RoundEntry | None:
        """Return the newest round."""
        self._read_folder(job_id)
        return super().last_round(job_id)

    def rounds(self, job_id: str, *, first: int, limit: int) -> list[RoundEntry]:
        """Return rounds in order."""
        self._read_folder(job_id)
        return super().rounds(job_id, first=first, limit=limit)

    def lines(self, job_id: str, *, skip: int = 0, limit: int | None = None) -> list[LedgerLine]:
        """Return ledger lines in the order they were written."""
        self._read_folder(job_id)
        return super().lines(job_id, skip=skip, limit=limit)

    def _read_folder(self, job_id: str) -> None:
        """Load a run's rounds and bill, once.

        Raises:
            StoreError: A file of the run is damaged.
        """
        if job_id not in self._unread:
            return
        with self._reading:
            if job_id not in self._unread:
                return
            try:
                run = read_run(self._unread[job_id])
            except CommandError as error:
                raise StoreError(str(error)) from error
            rounds = entries(run)
            with start_blocking_portal() as portal:
                for start in range(0, max(len(rounds), len(run.ledger)), _AT_ONCE):
                    part = slice(start, start + _AT_ONCE)
                    grown = partial(_grown, rounds[part], run.ledger[part])
                    portal.call(self.change, job_id, grown)
            del self._unread[job_id]


def _grown(
    rounds: tuple[RoundEntry, ...], lines: tuple[LedgerLine, ...], record: JobRecord
) -> Change:
    counted = record.model_copy(update={"num_lines": record.num_lines + len(lines)})
    return Change(record=counted, rounds=rounds, lines=lines)


def entries(run: Run) -> tuple[RoundEntry, ...]:
    """Return a run's rounds as a scaler stores them, as far as the record has them."""
    decided_at = run.job.started_at or run.job.created_at
    return tuple(_entry(line, decided_at) for line in run.rounds)


def _entry(line: RoundLine, decided_at: float) -> RoundEntry:
    attempt = PlannedAttempt(
        plan=line.plan, lease_id=_LEASE, planned_at=decided_at, launches=_NOTHING_KNOWN
    )
    return RoundEntry(
        round=line.plan.round, attempts=(attempt,), ratio=line.plan.ratio, result=line.result
    )


def folder_record(folder: Path, job: Job) -> JobRecord:
    """Return a run as a scaler stores its job; an interrupted run counts as stopped."""
    if job.status not in FINISHED:
        job = _cut_short(read_run(folder))
    cost = read_cost(folder)
    return JobRecord(
        job=job,
        settled_usd=job.spent_usd if cost is None else cost.settled_usd,
        projected_wall_s=0.0 if cost is None else cost.projected_wall_s,
        serverful_wall_s=cost.serverful[0].wall_s if cost and cost.serverful else 0.0,
    )


def _cut_short(run: Run) -> Job:
    """Return the job of an interrupted run, whose file is from its start."""
    found = {"status": "stopped", "progress": run.progress, "spent_usd": run.cost_usd}
    return run.job.model_copy(update=found)


@contextmanager
def finished_runs_app(runs_dir: Path) -> Iterator[tuple[FastAPI, str]]:
    """Yield the application for a folder of runs, and its read-only token.

    Raises:
        CommandError: The folder has no run.
    """
    newest = {job.job_id: (folder, job) for folder, job in reversed(readable_jobs(runs_dir))}
    jobs = [*newest.values()][::-1]
    if not jobs:
        train = Place(runs_dir=runs_dir).command("train")
        raise CommandError(
            f"nothing runs, and there is no run in {runs_dir}: start one with `{train}`, or choose "
            "another folder with --runs-dir"
        )
    token = secrets.token_urlsafe(32)
    with TemporaryDirectory(prefix="nitro-dashboard-") as place:
        book = RunFolderBook(
            Path(place) / "runs.sqlite3", {job.job_id: folder for folder, job in jobs}
        )
        # In a new thread: the caller's may have a running loop, as in a notebook.
        with start_blocking_portal() as portal:
            for folder, job in reversed(jobs):  # in order of submission, newest last
                portal.call(book.create, folder_record(folder, job))
        yield create_app(_settings(runs_dir, token), book=book, live=False), token


def _settings(runs_dir: Path, token: str) -> Settings:
    return Settings(
        token=SecretStr(secrets.token_urlsafe(32)),
        viewer_token=SecretStr(token),
        runs_dir=runs_dir,
        cache_url=SecretStr(f"redis://{_NOBODY}/0"),
        lambda_endpoint_url=f"http://{_NOBODY}",
        lambda_token=SecretStr("nobody"),
        keep_alive=False,
    )


def serve_finished_runs(
    runs_dir: Path, *, port: int | None, tell: Callable[[str, str], None]
) -> None:
    """Serve the page for a folder of runs until Ctrl-C.

    Args:
        runs_dir: Folder of the runs.
        port: Port to listen on; None takes a free one.
        tell: Called with the address and its token once the server answers.

    Raises:
        CommandError: There is no run, or the port is taken.
    """
    with finished_runs_app(runs_dir) as (app, token):
        try:
            listener = listen(LOOPBACK, port or 0)
        except OSError as error:
            raise CommandError(f"--port: cannot listen on {port}: {error.strerror}") from error
        with listener:
            tell(f"http://{LOOPBACK}:{listener.getsockname()[1]}", token)
            keep_exit_code()
            # Hide the scaler's reports about the missing cache and Lambda: both are expected.
            logging.getLogger().addHandler(logging.NullHandler())
            config = uvicorn.Config(
                app, http=BoundedConnection, ws="none", log_config=None, access_log=False
            )
            uvicorn.Server(config).run(sockets=[listener])
