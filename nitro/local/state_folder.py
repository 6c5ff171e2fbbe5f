"""The local system's own folder, `runs/.nitro/`: lock, secrets, address, database and logs.

Only this user can read it, because it has the secrets of the REST API, the emulator and the cache.
Concurrent systems on one folder of runs have separate folders: `runs/.nitro/2/`, and so on.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from nitro.errors import EXIT_FAILED, CommandError
from nitro.settings import ADDRESS_FILE, STATE_FOLDER, TOKEN_FILE
from services.scaler.book.moving import find_job, move_job
from services.scaler.book.table import StoreError

_SECRET_BYTES = 32
_PRIVATE = 0o700
_DATABASE = "nitro.db"
_LASTING = "nitro up"
"""Follows the process id in the lock of a system that outlives single jobs."""
_LOOK_S = 0.05
_TRIES = 3
"""Attempts to take the lock: a reader of its holder has it for a moment."""
_ROOM_BYTES = 262_144
"""With less free space, writes of the job database and of checkpoints may fail."""


class StateFolder:
    """Files of one local system; the lock makes it the only one in its folder."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir.absolute()
        self._lock: IO[bytes] | None = None
        self._use(self.runs_dir / STATE_FOLDER)

    def _use(self, folder: Path) -> None:
        self.folder = folder
        self.token_path = folder / TOKEN_FILE
        self.viewer_token_path = folder / "viewer_token"
        self.lambda_token_path = folder / "lambda_token"
        self.cache_config_path = folder / "cache.conf"
        """Configuration of the embedded cache server, which holds its password."""
        self.database_path = folder / _DATABASE
        self.logs = folder / "logs"
        self._address_path = folder / ADDRESS_FILE

    def is_served(self) -> bool:
        """Whether `nitro up` serves the folder; waits for a starting one."""
        while _holder(self.folder).endswith(_LASTING):
            if self._address_path.exists():
                return True
            time.sleep(_LOOK_S)
        return False

    def acquire(self, *, lasting: bool = False) -> None:
        """Create the folder and take the lock, which the kernel releases at this process's end.

        A system for a single job takes another folder if this one is locked.

        Args:
            lasting: Whether the system outlives single jobs, so that others may use it.

        Raises:
            CommandError: The folder is not writable, or another local system holds the lock and
                this one is lasting: it cannot use another folder.
        """
        number = 1
        self._use(self.runs_dir / STATE_FOLDER)
        while not _taken(lock := self._opened_lock()):
            if not lasting:
                lock.close()
                number += 1
                self._use(self.runs_dir / STATE_FOLDER / str(number))
                continue
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "unknown"
            lock.close()
            raise CommandError(
                f"--runs-dir: a local system (pid {holder}) is up on {self.runs_dir} already: "
                f"use it with --api-url {self._address()}, wait until it has ended, or choose "
                "another folder"
            )
        self._lock = lock
        with self._writing():
            self._address_path.unlink(missing_ok=True)  # left over from a killed system
            lock.truncate(0)
            lock.write(f"{os.getpid()}{f', {_LASTING}' if lasting else ''}".encode())

    def take_over(self, *, job_id: str | None, key: str | None) -> None:
        """Move a job of this runs folder here from the database of an earlier system.

        Args:
            job_id: The job.
            key: Alternatively, the idempotency key of its submission.

        Raises:
            CommandError: A running system has the job, or a database is unusable.
        """
        home = self.runs_dir / STATE_FOLDER
        for database in (home / _DATABASE, *sorted(home.glob(f"[0-9]*/{_DATABASE}"))):
            if database == self.database_path or not database.is_file():
                continue
            try:
                found = find_job(database, job_id=job_id, key=key)
                if found is None:
                    continue
                holder = _holder(database.parent)
                if holder and found.is_live:
                    raise CommandError(
                        f"job {found.job_id} is not over: process {holder} trains it, or waits for "
                        "its last actors. Wait, or end that process"
                    )
                move_job(found.job_id, database, self.database_path)
            except StoreError as error:
                raise CommandError(str(error), exit_code=EXIT_FAILED) from error

    def _opened_lock(self) -> IO[bytes]:
        with self._writing():
            self.logs.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(_PRIVATE)  # an earlier version may have left it readable by all
            # Unbuffered: no write is left that could fail at the close.
            return (self.folder / "lock").open("ab+", buffering=0)

    def require_room(self) -> None:
        """Test a write: if it fails, the processes cannot write either, not even their logs.

        Raises:
            CommandError: The disk is full, or the folder is not writable for another reason.
        """
        probe = self.folder / "room"
        try:
            probe.write_bytes(bytes(_ROOM_BYTES))
        except OSError as error:
            raise CommandError(
                f"cannot write to {self.runs_dir}: {error.strerror}. Checkpoints, logs and the job "
                "database are kept there: make room on its disk, or choose another --runs-dir",
                exit_code=EXIT_FAILED,
            ) from error
        finally:
            with suppress(OSError):
                probe.unlink()

    def release(self) -> None:
        """Release the lock and remove the files of a running system; safe to repeat."""
        if self._lock is None:
            return
        secret = (
            self.token_path,
            self.viewer_token_path,
            self.lambda_token_path,
            self.cache_config_path,
        )
        for path in (self._address_path, *secret):
            path.unlink(missing_ok=True)
        self._lock.close()
        self._lock = None

    def write_token(self) -> str:
        """Create a random token for the API."""
        return self._write_secret(self.token_path)

    def write_viewer_token(self) -> str:
        """Create a random read-only token for the API."""
        return self._write_secret(self.viewer_token_path)

    def write_lambda_token(self) -> str:
        """Create a random token for the emulator."""
        return self._write_secret(self.lambda_token_path)

    def write_cache_password(self) -> str:
        """Create a random password for the cache; as a file, no list of processes shows it."""
        return self._write_secret(self.cache_config_path, before="requirepass ")

    def _write_secret(self, path: Path, *, before: str = "") -> str:
        """Write a random secret that only this user can read.

        Raises:
            CommandError: The folder is not writable.
        """
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        with self._writing():
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{before}{secret}")
        return secret

    def write_address(self, url: str) -> None:
        """Store the API's address for other commands on this machine.

        Raises:
            CommandError: The folder is not writable.
        """
        with self._writing():
            self._address_path.write_text(url, encoding="utf-8")

    def fresh_log(self, name: str) -> Path:
        """Return a process's log file, keeping the previous one as `.log.1`.

        Raises:
            CommandError: The folder cannot be written.
        """
        path = self.logs / f"{name}.log"
        with self._writing():
            if path.exists():
                path.replace(path.with_suffix(".log.1"))
        return path

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn write errors into messages that name the folder, or its full disk."""
        try:
            yield
        except OSError as error:
            raise CommandError(
                f"--runs-dir: cannot write to {self.runs_dir} ({error.strerror}): choose a folder "
                "you may write to, with free space, or change its owner"
            ) from error

    def _address(self) -> str:
        try:
            return self._address_path.read_text(encoding="utf-8").strip()
        except OSError:
            return "<its address>"


def _holder(folder: Path) -> str:
    """Return the text of a lock's holder; empty if the lock is free."""
    try:
        with (folder / "lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().decode(errors="replace").strip()
    except OSError:
        pass  # no system was started here
    return ""


def _taken(lock: IO[bytes]) -> bool:
    """Take the lock, unless it is held for longer than a reader of its holder would."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOOK_S)
        else:
            return True
    return False
