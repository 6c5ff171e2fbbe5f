"""A run's files in a local folder."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shared.artifacts.claim import Claim, sync_folder
from shared.artifacts.store import ArtifactError, ArtifactFile

_EVENTS = "events.out.tfevents."
"""Prefix of TensorBoard's file names."""
_REMOVALS = 20
"""Most attempts to remove a folder, because a learner may still write a run's last files."""


class LocalArtifacts:
    """Artifacts under `root/{job_id}/`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._claim: tuple[str, Claim] | None = None
        """The job claimed by this store: a learner trains one at a time."""

    def require_writable(self) -> None:
        """Create the root folder if it is missing, and test a write.

        Raises:
            ArtifactError: The folder is not writable.
        """
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root):
                pass
        except OSError as error:
            raise self._unwritable(self._root, error) from error

    def claim(self, job_id: str, epoch: int) -> None:
        """Create the folder for our writes, and remove the folders of earlier claims."""
        self._end_claim()
        base = self.local_folder(job_id)
        try:
            claim = Claim(base, epoch)
        except OSError as error:
            raise self._unwritable(base, error) from error
        self._claim = (job_id, claim)

    def withdraw(self, job_id: str) -> None:
        """Undo the claim."""
        claim = self._claim_of(job_id)
        if claim is not None:
            claim.withdraw()
            self._end_claim()

    def write(self, job_id: str, name: str, data: bytes) -> None:
        """Replace a file atomically: readers see old or new bytes, even after a power cut."""
        path = self._path(job_id, name)
        claim = self._claim_of(job_id)
        if claim is not None:
            with self._writing(path):
                claim.write(name, data)
            return
        staged = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with staged.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                staged.unlink()
            raise self._unwritable(path, error) from error

    def append(self, job_id: str, name: str, line: str) -> None:
        """Append one line."""
        path = self._path(job_id, name)
        claim = self._claim_of(job_id)
        with self._writing(path):
            if claim is not None:
                claim.append(name, f"{line}\n".encode())
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())

    def read(self, job_id: str, name: str) -> bytes | None:
        """Return a file's bytes, or None."""
        try:
            return self._path(job_id, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ArtifactError(f"cannot read {self._path(job_id, name)}: {error}") from error

    def names(self, job_id: str, folder: str) -> list[str]:
        """Return entry names, sorted."""
        path = self._path(job_id, folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def files(self, job_id: str, *, limit: int, after: str = "") -> list[ArtifactFile]:
        """Return a job's files, except for unfinished writes."""
        base, found = self._root / job_id, []
        for path in sorted(base.rglob("*"), key=Path.as_posix):
            name = path.relative_to(base)
            if (
                name.as_posix() <= after
                or any(part.startswith(".") for part in name.parts)
                or path.is_symlink()
            ):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if path.is_file():
                    found.append(_file(name.as_posix(), status))
            if len(found) == limit:
                break
        return found

    def link(self, job_id: str, name: str) -> Path | None:
        """Return a file's path; None if it is not a file, or is outside the folder."""
        path = self._path(job_id, name)
        inside = path.resolve().is_relative_to((self._root / job_id).resolve())
        return path if inside and path.is_file() else None

    def delete(self, job_id: str, folder: str) -> None:
        """Remove a folder."""
        path = self._path(job_id, folder)
        claim = self._claim_of(job_id)
        if claim is None:
            self._remove(path)
            return
        with self._writing(path):
            claim.delete(folder)

    def delete_job(self, job_id: str) -> None:
        """Remove the job's folder, including all claims."""
        self._remove(self._root / job_id)

    def local_folder(self, job_id: str) -> Path:
        """Return the job's own folder, created if missing."""
        path = self._root / job_id
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(path, error) from error
        return path

    def publish(self, job_id: str) -> None:
        """Do nothing: all files are already in place."""

    def release(self, job_id: str) -> None:
        """Remove the folder if TensorBoard recreated it after the job was deleted.

        A folder with any other file stays: somebody may have restored it.
        """
        claim = self._claim_of(job_id)
        if claim is None or not claim.is_deleted:
            return
        folder = self._root / job_id
        with contextlib.suppress(OSError):
            written = [*folder.iterdir()]
            if all(path.name.startswith(_EVENTS) for path in written):
                for path in written:
                    path.unlink()
                folder.rmdir()

    def locate(self, job_id: str) -> str:
        """Return the folder's path."""
        return str(self._root / job_id)

    def _claim_of(self, job_id: str) -> Claim | None:
        return self._claim[1] if self._claim is not None and self._claim[0] == job_id else None

    def _end_claim(self) -> None:
        if self._claim is not None:
            self._claim[1].close()
        self._claim = None

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(path, error) from error

    def _path(self, job_id: str, name: str) -> Path:
        base = self._root / job_id
        path = base / name
        if ".." in path.parts or base == self._root or self._root not in path.parents:
            raise ArtifactError(f"artifact name {name!r} of job {job_id!r} leaves the run's folder")
        return path

    def _remove(self, path: Path) -> None:
        for _ in range(_REMOVALS):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                pass  # the folder does not exist, or a file was removed during the listing
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise self._unwritable(path, error) from error
            if not path.exists():
                return
        raise ArtifactError(
            f"cannot remove {path}: new files keep coming; delete the job again when its learner "
            "has left it"
        )

    @staticmethod
    def _unwritable(path: Path, error: OSError) -> ArtifactError:
        return ArtifactError(
            f"cannot write {path}: {error.strerror or error}; "
            "check the folder's owner and free space, or choose another runs folder"
        )


def _file(name: str, status: os.stat_result) -> ArtifactFile:
    return ArtifactFile(name=name, size=status.st_size, modified_at=status.st_mtime)
