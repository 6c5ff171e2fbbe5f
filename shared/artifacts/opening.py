"""Opens the location of runs' files: a local folder, or an S3 bucket."""

from pathlib import Path

from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import ArtifactStore


def open_artifacts(location: str, *, region: str | None = None) -> ArtifactStore:
    """Return the artifacts at `s3://bucket/prefix`, or else in a local folder.

    Without `region`, the SDK's configuration determines the bucket's region.

    Raises:
        ArtifactError: The location is malformed.
    """
    if "://" not in location:
        return LocalArtifacts(Path(location))
    from shared.artifacts.s3 import S3Artifacts  # needs the SDK, which a single machine does not

    return S3Artifacts.connect(location, region=region)
