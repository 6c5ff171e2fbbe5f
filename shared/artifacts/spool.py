"""The local part of a job's files, while the rest is in a bucket.

There are two kinds of files, under their names in the run: files with appended lines, each with the
version of the object that it continues, and files that libraries write themselves.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shared.artifacts.store import ArtifactError


class Spool:
    """One job's temporary folder, with the upload state of its files."""

    def __init__(self, job_id: str) -> None:
        """Create the folder.

        Raises:
            ArtifactError: No temporary folder can be created.
        """
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=f"nitro-{job_id}-"))
        except OSError as error:
            raise ArtifactError(
                f"cannot make a folder for temporary files: {error}; set TMPDIR to a folder that "
                "can be written"
            ) from error
        self.versions: dict[str, str | None] = {}
        """Last seen object version of each appended file; None without an object."""
        self.pending: set[str] = set()
        """Appended files with lines to upload."""
        self.published_at: float | None = None
        self._uploaded: dict[str, tuple[int, int]] = {}  # size and time of modification

    def begin(self, name: str, data: bytes, version: str | None) -> None:
        """Start an appended file with an object's bytes."""
        self._write(name, "wb", data)
        self.versions[name] = version

    def append(self, name: str, line: str) -> None:
        """Append a line to a started file."""
        self._write(name, "ab", f"{line}\n".encode())
        self.pending.add(name)

    def read(self, name: str) -> bytes:
        """Return an appended file's bytes."""
        return (self.folder / name).read_bytes()

    def names(self, folder: str) -> list[str]:
        """Return the entries directly under a folder."""
        path = self.folder / folder
        return [entry.name for entry in path.iterdir()] if path.is_dir() else []

    def changed(self) -> Iterator[tuple[str, Path]]:
        """Yield name and path of libraries' files that changed since their upload.

        The current state of a file counts as uploaded when the next file is requested.
        """
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            name = path.relative_to(self.folder).as_posix()
            status = path.stat()
            state = (status.st_size, status.st_mtime_ns)
            if name not in self.versions and self._uploaded.get(name) != state:
                yield name, path
                self._uploaded[name] = state

    def forget(self, folder: str) -> None:
        """Remove a folder."""
        shutil.rmtree(self.folder / folder, ignore_errors=True)
        for name in [name for name in self.versions if name.startswith(f"{folder}/")]:
            del self.versions[name]
            self.pending.discard(name)

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, name: str, mode: str, data: bytes) -> None:
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode) as file:
                file.write(data)
        except OSError as error:
            raise ArtifactError(
                f"cannot write {path}: {error.strerror or error}; check the free space for "
                "temporary files, or set TMPDIR to another folder"
            ) from error
