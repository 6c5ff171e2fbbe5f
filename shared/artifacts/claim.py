"""A claim on a run's local folder: writes under it pass through a separate folder.

Two learners may briefly believe that they train the same job, if a paused one wakes after its lease
has expired. So each write is prepared in a folder named after the claim and then renamed into
place, and each removal is a rename into that folder. A newer claim removes the folder, so the old
learner can write nothing more, wherever it was paused.

Lines are the exception: they are appended to a file that was opened before the claim is checked. A
newer claim first replaces such files, so a later line goes to an unlinked file.

All paths are relative to the claimed folder. Once it is deleted, nothing recreates it.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path, PurePosixPath

from shared.artifacts.store import FencedError

_NAME = re.compile(r"^\.claim-(\d+)$")


class Claim:
    """A folder that this process may write until it is claimed with a larger epoch."""

    def __init__(self, base: Path, epoch: int) -> None:
        """Claim an existing folder.

        Raises:
            FencedError: It is claimed with a larger epoch.
            OSError: It cannot be written.
        """
        self._base = base
        self._own = f".claim-{epoch}"
        self._folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Write ours first: of two concurrent claims, at least one sees the other.
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._own, dir_fd=self._folder)
            self._settle(epoch)
        except BaseException:
            self.close()
            raise

    @property
    def is_deleted(self) -> bool:
        """Whether the claimed folder is gone; another one may be in its place."""
        return os.fstat(self._folder).st_nlink == 0

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically and durably."""
        staged = f"{self._own}/{PurePosixPath(name).name}"
        file = self._open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        _write_out(file, data)
        try:
            staged, place = self._with_its_folders(staged, PurePosixPath(name))
            self._move(staged, str(place))
        except FileNotFoundError as error:
            raise self._fenced() from error
        self._sync(place.parent)

    def append(self, name: str, data: bytes) -> None:
        """Append to a file, durably."""
        file = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.stat(self._own, dir_fd=self._folder)
        except FileNotFoundError as error:
            os.close(file)
            raise self._fenced() from error
        _write_out(file, data)

    def delete(self, name: str) -> None:
        """Remove a folder if it exists."""
        trash = f"{self._own}/{PurePosixPath(name).name}.gone"
        self._remove(trash)
        try:
            self._move(name, trash)
        except FileNotFoundError as error:
            if self._is_held():
                return
            raise self._fenced() from error
        self._remove(trash)

    def withdraw(self) -> None:
        """Remove the claim's folder, and the run's folder if it is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(self._own, dir_fd=self._folder)
            self._base.rmdir()

    def close(self) -> None:
        """Close the folder; the claim stays valid against smaller epochs."""
        os.close(self._folder)

    def _settle(self, epoch: int) -> None:
        found = {name: _NAME.match(name) for name in self._entries()}
        claims = {name: int(match[1]) for name, match in found.items() if match}
        if max(claims.values(), default=epoch) > epoch:
            with contextlib.suppress(OSError):
                os.rmdir(self._own, dir_fd=self._folder)
            raise self._fenced()
        for name, number in claims.items():
            if number < epoch:
                # Atomically: a concurrent writer finds the whole folder gone.
                self._move(name, f"{self._own}/{name}")
                self._remove(f"{self._own}/{name}")

    def _is_held(self) -> bool:
        return self._own in self._entries()

    def _entries(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in entries]

    def _move(self, name: str, place: str) -> None:
        os.rename(name, place, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _remove(self, name: str) -> None:
        shutil.rmtree(name, ignore_errors=True, dir_fd=self._folder)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags, 0o644, dir_fd=self._folder)
        except FileNotFoundError as error:
            raise self._fenced() from error

    def _with_its_folders(self, staged: str, place: PurePosixPath) -> tuple[str, PurePosixPath]:
        """Stage a file's missing folders around it; return the source and target of the move.

        They appear together with the file: a writer that loses the claim leaves no empty folder.
        """
        missing = [folder for folder in place.parents[:-1] if not self._exists(folder)]
        if not missing:
            return staged, place
        top = missing[-1]
        new = PurePosixPath(self._own, f"{top.name}.new")
        self._remove(str(new))
        for folder in reversed(missing):
            os.mkdir(str(new / folder.relative_to(top)), dir_fd=self._folder)
        inside = new / place.relative_to(top)
        self._move(staged, str(inside))
        self._sync(inside.parent)
        return str(new), top

    def _exists(self, folder: PurePosixPath) -> bool:
        try:
            os.stat(str(folder), dir_fd=self._folder)
        except FileNotFoundError:
            return False
        return True

    def _sync(self, folder: PurePosixPath) -> None:
        _sync(os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder))

    def _fenced(self) -> FencedError:
        what = "the job was deleted" if self.is_deleted else "another learner has the job by now"
        return FencedError(f"{self._base}: nothing is written: {what}")


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, like its files' contents."""
    _sync(os.open(path, os.O_RDONLY))


def _sync(folder: int) -> None:
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write_out(file: int, data: bytes) -> None:
    with open(file, "wb", closefd=True) as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
