"""Where artifacts are: in a folder, and in a bucket."""

import uuid
from pathlib import Path

import boto3
import pytest


@pytest.fixture(params=["folder", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a new place for artifacts, of either kind."""
    if request.param == "folder":
        return str(tmp_path / "runs")
    request.getfixturevalue("aws")
    bucket = f"nitro-{uuid.uuid4().hex[:8]}"
    client = boto3.client("s3")
    client.create_bucket(Bucket=bucket)
    client.close()
    return f"s3://{bucket}/runs"
