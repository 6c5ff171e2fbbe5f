"""Where a run's files are: a local folder, or a bucket in S3."""

from pathlib import Path

from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import ArtifactStore


def open_artifacts(location: str, *, region: str | None = None) -> ArtifactStore:
    """Return the artifacts at `s3://bucket/prefix` or, for anything else, in a local folder.

    Without the bucket's region, the SDK's own configuration says it.

    Raises:
        ArtifactError: The location is malformed.
    """
    if "://" not in location:
        return LocalArtifacts(Path(location))
    from shared.artifacts.s3 import S3Artifacts  # needs the SDK, which one machine can do without

    return S3Artifacts.connect(location, region=region)
