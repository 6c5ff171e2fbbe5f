"""Artifacts in an S3 bucket: `{prefix}/{job}/{name}`, the layout of the local folder.

A file is one object, so a write is atomic. S3 cannot append: lines go to a spool file first. The
whole file is uploaded before any other write of the job, and on `publish`. So a checkpoint never
exists in the bucket without the lines before it, and lines that are lost with their machine belong
to a round that is repeated.

A learner claims a job in a separate object, which is checked before every write. A second fence
stops a learner that was paused between check and write: an upload of a spooled file replaces only
the version that this store saw last. As lines come before checkpoints, this learner cannot write a
checkpoint either.
"""

import contextlib
import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shared.artifacts.spool import Spool
from shared.artifacts.store import LINK_S, ArtifactError, ArtifactFile, FencedError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_LOG = logging.getLogger(__name__)
_LOCATION = re.compile(r"^s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?$")
_PUBLISH_EVERY_S = 10.0
"""Shortest time between two uploads of `local_folder`, which grows continuously."""
_DELETE_BATCH = 1000
_CLAIM = ".claim"
"""Holds the epoch of the newest claim on a job."""
_CLAIM_TRIES = 5
_MISSING = frozenset({"NoSuchKey", "404"})
_REFUSED = frozenset({"AccessDenied", "403"})
_CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})


class S3Artifacts:
    """Artifacts under `s3://{bucket}/{prefix}/{job_id}/`; used by one thread at a time."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        client: "S3Client",
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._client = client
        self._now = now
        self._spools: dict[str, Spool] = {}
        self._claims: dict[str, int] = {}
        """The claimed epoch by job; at most one."""

    @classmethod
    def connect(cls, location: str, *, region: str | None) -> Self:
        """Return the artifacts at `s3://bucket/prefix`; nothing is sent yet.

        Raises:
            ArtifactError: The location is malformed.
        """
        match = _LOCATION.match(location)
        if match is None:
            raise ArtifactError(
                f"NITRO_ARTIFACTS {location!r} is neither a folder nor s3://bucket/prefix"
            )
        config = Config(
            connect_timeout=5.0,
            read_timeout=30.0,
            retries={"total_max_attempts": 5, "mode": "standard"},
            tcp_keepalive=True,
            signature_version="s3v4",  # also for links
        )
        client = boto3.client("s3", region_name=region, config=config)
        return cls(match[1], match[2] or "", client)

    def claim(self, job_id: str, epoch: int) -> None:
        """Write the epoch unless there is a larger one."""
        key = self._key(job_id, _CLAIM)
        self._claims = {}
        for _ in range(_CLAIM_TRIES):
            newest, etag = self._object(key)
            if newest is not None and int(newest) > epoch:
                raise self._fenced(job_id)
            try:
                self._replace(key, str(epoch).encode(), etag)
            except FencedError:
                continue  # another learner wrote first: check again
            self._claims = {job_id: epoch}
            return
        raise self._fenced(job_id)

    def withdraw(self, job_id: str) -> None:
        """Remove the claim if it is still ours."""
        epoch = self._claims.pop(job_id, None)
        if epoch is not None and self._object(self._key(job_id, _CLAIM))[0] == str(epoch).encode():
            self._delete(self._key(job_id, _CLAIM))

    def write(self, job_id: str, name: str, data: bytes) -> None:
        """Replace an object, after uploading earlier lines."""
        self._require_claim(job_id)
        key = self._key(job_id, name)
        spool = self._spools.get(job_id)
        if spool is not None:
            spool.pending.discard(name)
            self._upload_lines(job_id, spool)
        with self._errors("write", key):
            etag = self._client.put_object(Bucket=self._bucket, Key=key, Body=data)["ETag"]
        if spool is not None and name in spool.versions:
            spool.begin(name, data, etag)

    def append(self, job_id: str, name: str, line: str) -> None:
        """Append one line to the spooled file."""
        key = self._key(job_id, name)
        spool = self._spool(job_id)
        if name not in spool.versions:
            data, etag = self._object(key)
            spool.begin(name, data or b"", etag)
        spool.append(name, line)

    def read(self, job_id: str, name: str) -> bytes | None:
        """Return a file's bytes, including lines not uploaded yet, or None."""
        key = self._key(job_id, name)
        spool = self._spools.get(job_id)
        if spool is not None and name in spool.versions:
            return spool.read(name)
        return self._object(key)[0]

    def names(self, job_id: str, folder: str) -> list[str]:
        """Return the entries directly under a folder, sorted."""
        prefix = f"{self._key(job_id, folder)}/"
        found = set()
        for page in self._pages(prefix, delimiter="/"):
            found |= {entry["Key"] for entry in page.get("Contents", [])}
            found |= {entry["Prefix"] for entry in page.get("CommonPrefixes", [])}
        spool = self._spools.get(job_id)
        if spool is not None:
            found |= {prefix + name for name in spool.names(folder)}
        return sorted(key.removeprefix(prefix).rstrip("/") for key in found - {prefix})

    def files(self, job_id: str, *, limit: int, after: str = "") -> list[ArtifactFile]:
        """Return a job's objects."""
        prefix = f"{self._key(job_id, '')}/"
        objects = (
            entry
            for page in self._pages(prefix, after=prefix + after)
            for entry in page.get("Contents", [])
        )
        shown = (entry for entry in objects if entry["Key"] != f"{prefix}{_CLAIM}")
        return [
            ArtifactFile(
                name=entry["Key"].removeprefix(prefix),
                size=entry["Size"],
                modified_at=entry["LastModified"].timestamp(),
            )
            for entry in itertools.islice(shown, limit)
        ]

    def link(self, job_id: str, name: str) -> str:
        """Return a presigned URL, valid for `LINK_S`, or until our own credentials expire."""
        key = self._key(job_id, name)
        # So a browser saves the file, and stays on the current page.
        saved = {"ResponseContentDisposition": "attachment"}
        with self._errors("sign", key):
            return self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": key, **saved}, ExpiresIn=LINK_S
            )

    def delete(self, job_id: str, folder: str) -> None:
        """Remove every object under a folder."""
        self._require_claim(job_id)
        spool = self._spools.get(job_id)
        if spool is not None:
            spool.forget(folder)
        self._delete(f"{self._key(job_id, folder)}/")

    def delete_job(self, job_id: str) -> None:
        """Remove every object of the job, and its local files."""
        self._drop(job_id)
        self._delete(f"{self._key(job_id, '')}/")

    def local_folder(self, job_id: str) -> Path:
        """Return a temporary folder that `publish` uploads file by file."""
        return self._spool(job_id).folder

    def publish(self, job_id: str) -> None:
        """Upload appended lines and, if due, the local folder."""
        self._require_claim(job_id)
        spool = self._spool(job_id)
        self._upload_lines(job_id, spool)
        now = self._now()
        if spool.published_at is None or now - spool.published_at >= _PUBLISH_EVERY_S:
            spool.published_at = now
            self._upload_folder(job_id, spool)

    def release(self, job_id: str) -> None:
        """Upload the local folder and remove it."""
        spool = self._spools.get(job_id)
        if spool is not None:
            try:
                self._require_claim(job_id)
                self._upload_folder(job_id, spool)
            except ArtifactError as error:
                _LOG.warning("files not published", extra={"job": job_id, "why": str(error)})
            self._drop(job_id)

    def locate(self, job_id: str) -> str:
        """Return the job's address in S3."""
        return f"s3://{self._bucket}/{self._key(job_id, '')}"

    def _require_claim(self, job_id: str) -> None:
        """Check that our claim, if any, is still the newest."""
        epoch = self._claims.get(job_id)
        if epoch is not None:
            newest, _ = self._object(self._key(job_id, _CLAIM))
            if newest != str(epoch).encode():
                raise self._fenced(job_id)

    def _fenced(self, job_id: str) -> FencedError:
        return FencedError(
            f"{self.locate(job_id)}: nothing is written: another learner has the job by now, or it "
            "was deleted"
        )

    def _key(self, job_id: str, name: str) -> str:
        path = PurePosixPath(job_id, name)
        is_inside = path.parts[:1] == (job_id,) and ".." not in path.parts
        if not is_inside or path.is_absolute():
            raise ArtifactError(f"artifact name {name!r} of job {job_id!r} leaves the run's folder")
        return f"{self._prefix}/{path}" if self._prefix else str(path)

    def _object(self, key: str) -> tuple[bytes | None, str | None]:
        """Return an object's bytes and tag, or (None, None)."""
        with self._errors("read", key):
            try:
                reply = self._client.get_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code in _MISSING or (code in _REFUSED and not self._is_listed(key)):
                    return None, None
                raise
            return reply["Body"].read(), reply["ETag"]

    def _is_listed(self, key: str) -> bool:
        """Return whether an object exists.

        If a role may list only below a prefix, S3 answers "access denied" for missing objects.
        """
        reply = self._client.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1)
        return any(entry["Key"] == key for entry in reply.get("Contents", []))

    def _pages(self, prefix: str, *, delimiter: str = "", after: str = "") -> Iterator[Any]:
        paginator = self._client.get_paginator("list_objects_v2")
        with self._errors("list", prefix):
            yield from paginator.paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter=delimiter, StartAfter=after
            )

    def _delete(self, prefix: str) -> None:
        keys = [entry["Key"] for page in self._pages(prefix) for entry in page.get("Contents", [])]
        for start in range(0, len(keys), _DELETE_BATCH):
            batch: Any = [{"Key": key} for key in keys[start : start + _DELETE_BATCH]]
            with self._errors("delete", prefix):
                reply = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True}
                )
            for refused in reply.get("Errors", []):
                raise self._unusable("delete", refused["Key"], refused["Message"])

    def _upload_lines(self, job_id: str, spool: Spool) -> None:
        for name in sorted(spool.pending):
            version = self._replace(self._key(job_id, name), spool.read(name), spool.versions[name])
            spool.versions[name] = version
            spool.pending.discard(name)

    def _replace(self, key: str, data: bytes, seen: str | None) -> str:
        """Replace only the version that was seen last; return the new tag."""
        condition: Any = {"IfNoneMatch": "*"} if seen is None else {"IfMatch": seen}
        with self._errors("write", key):
            try:
                reply = self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=data, **condition
                )
            except ClientError as error:
                if error.response["Error"]["Code"] not in _CHANGED:
                    raise
            else:
                return reply["ETag"]
        # The SDK may have sent the request twice, and this may be the second answer.
        current, etag = self._object(key)
        if etag is None or current != data:
            raise FencedError(
                f"s3://{self._bucket}/{key}: nothing is written: somebody else changed it since it "
                "was last seen"
            )
        return etag

    def _upload_folder(self, job_id: str, spool: Spool) -> None:
        """Upload changed files; a failure delays readers, but does not end the run."""
        try:
            for name, path in spool.changed():
                key = self._key(job_id, name)
                with self._errors("write", key):
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=path.read_bytes())
        except (ArtifactError, OSError) as error:
            _LOG.warning("files not published", extra={"job": job_id, "why": str(error)})

    def _spool(self, job_id: str) -> Spool:
        if job_id not in self._spools:
            self._key(job_id, "")  # raises for an invalid job id
            self._spools[job_id] = Spool(job_id)
        return self._spools[job_id]

    def _drop(self, job_id: str) -> None:
        spool = self._spools.pop(job_id, None)
        if spool is not None:
            spool.remove()

    @contextlib.contextmanager
    def _errors(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise self._unusable(doing, key, error) from error

    def _unusable(self, doing: str, key: str, why: object) -> ArtifactError:
        return ArtifactError(
            f"cannot {doing} s3://{self._bucket}/{key}: {why}; check that NITRO_ARTIFACTS names a "
            "bucket this process's role may list, read and write"
        )
