"""Storage of a run's files: one folder per job, with the same layout locally and in the cloud.

`ArtifactStore` is the interface. `LocalArtifacts` stores the files under one root folder,
`S3Artifacts` in a bucket. Writes are atomic. Names are relative paths from our own code, never from
a request.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

JOB_FILE = "job.json"
ROUNDS_FILE = "rounds.jsonl"
LEDGER_FILE = "ledger.jsonl"
COST_FILE = "cost.json"
ENVIRONMENT_FILE = "environment.json"
CHECKPOINTS = "checkpoints"


class ArtifactError(RuntimeError):
    """A run's files cannot be read or written; the message names the path and the fix."""


class FencedError(ArtifactError):
    """Another learner has claimed the job, or the job was deleted: nothing was written."""


LINK_S = 900
"""Validity of a link to a file in a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFile:
    """One of a job's files."""

    name: str
    """Relative to the job's folder."""
    size: int
    """Bytes."""
    modified_at: float
    """Unix seconds."""


class ArtifactStore(Protocol):
    """Files of jobs, by job id and relative name."""

    def claim(self, job_id: str, epoch: int) -> None:
        """Claim a job's files against all smaller epochs.

        This store's later writes and removals raise `FencedError` once the job is claimed with a
        larger epoch, or deleted. It replaces this store's previous claim.

        Raises:
            FencedError: There is already such a claim; nothing is changed.
        """

    def withdraw(self, job_id: str) -> None:
        """Undo a claim that came too late, with its files."""

    def write(self, job_id: str, name: str, data: bytes) -> None:
        """Replace a file atomically and durably."""

    def append(self, job_id: str, name: str, line: str) -> None:
        """Append one line to a text file.

        Readers of this store see it at once. It is durable when the job's next `write` or `publish`
        returns.
        """

    def read(self, job_id: str, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is none."""

    def names(self, job_id: str, folder: str) -> list[str]:
        """Return the entries directly under a folder, sorted; empty if there is none."""

    def files(self, job_id: str, *, limit: int, after: str = "") -> list[ArtifactFile]:
        """Return a job's files in all folders: the first `limit` by name after the name `after`."""

    def link(self, job_id: str, name: str) -> str | Path | None:
        """Return a link to a file: a URL with an expiry, or a path.

        A URL may be of a missing file; None means that the file is missing.
        """

    def delete(self, job_id: str, folder: str) -> None:
        """Remove a folder of a job if it exists."""

    def delete_job(self, job_id: str) -> None:
        """Remove all files of a job, if any."""

    def local_folder(self, job_id: str) -> Path:
        """Return a local folder for libraries that write files themselves."""

    def publish(self, job_id: str) -> None:
        """Make appended lines durable, and publish `local_folder` soon."""

    def release(self, job_id: str) -> None:
        """Publish `local_folder` once more and release it. Never fails.

        Lines appended since the last `write` or `publish` are dropped unless they are durable.
        """

    def locate(self, job_id: str) -> str:
        """Return the job's location for users."""
