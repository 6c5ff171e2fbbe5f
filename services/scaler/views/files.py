"""A job's files, as links."""

from pathlib import Path
from urllib.parse import quote

from shared.artifacts.store import ArtifactError, ArtifactFile, ArtifactStore
from shared.contracts.views.files import ArtifactLink, ArtifactLinks

MOST_FILES = 1000


def artifact_links(files: ArtifactStore, job_id: str, *, after: str = "") -> ArtifactLinks:
    """Return links to a job's files by name, the first `MOST_FILES` after a name.

    Raises:
        ArtifactError: They cannot be listed.
    """
    listed = files.files(job_id, limit=MOST_FILES + 1, after=after)
    return ArtifactLinks(
        job_id=job_id,
        location=files.locate(job_id),
        files=tuple(_link(files, job_id, file) for file in listed[:MOST_FILES]),
        truncated=len(listed) > MOST_FILES,
    )


def link_to(files: ArtifactStore, job_id: str, name: str) -> str | Path | None:
    """Return a URL or a path of one of a job's files; None if it has no file of this name."""
    try:
        return files.link(job_id, name)
    except (ArtifactError, ValueError, OSError):  # outside the folder, or an invalid name
        return None


def _link(files: ArtifactStore, job_id: str, file: ArtifactFile) -> ArtifactLink:
    link = files.link(job_id, file.name)
    presigned = isinstance(link, str)
    own = f"/v1/jobs/{job_id}/artifacts/{quote(file.name)}"
    return ArtifactLink(
        name=file.name,
        size=file.size,
        modified_at=file.modified_at,
        url=link if isinstance(link, str) else own,
        presigned=presigned,
    )
