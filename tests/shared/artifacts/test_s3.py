"""What only a bucket can get wrong: two writers, lost answers, endless uploads, many objects."""

import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from shared.artifacts.opening import open_artifacts
from shared.artifacts.s3 import S3Artifacts
from shared.artifacts.store import ArtifactError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.usefixtures("spool")


@pytest.fixture
def client(aws: str) -> Iterator["S3Client"]:
    connected = boto3.client("s3")
    yield connected
    connected.close()


@pytest.fixture
def bucket(client: "S3Client") -> str:
    name = f"nitro-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=name)
    return name


def test_a_learner_that_lost_its_job_can_write_neither_lines_nor_a_checkpoint(
    bucket: str, client: "S3Client"
) -> None:
    lost, current = (S3Artifacts(bucket, "runs", client) for _ in range(2))
    lost.append("job", "rounds.jsonl", "0")
    lost.write("job", "checkpoints/000001/state.json", b"")
    current.write("job", "rounds.jsonl", b"0\n")
    current.append("job", "rounds.jsonl", "1 by the current one")
    current.write("job", "checkpoints/000002/state.json", b"current")
    lost.append("job", "rounds.jsonl", "1 by the lost one")
    with pytest.raises(ArtifactError, match=r"rounds.jsonl: nothing is written: somebody else"):
        lost.write("job", "checkpoints/000002/state.json", b"lost")
    with pytest.raises(ArtifactError, match="somebody else changed it"):
        lost.publish("job")
    lost.release("job")
    assert current.read("job", "rounds.jsonl") == b"0\n1 by the current one\n"
    assert open_artifacts(f"s3://{bucket}/runs").read("job", "rounds.jsonl") == (
        b"0\n1 by the current one\n"
    )
    assert current.read("job", "checkpoints/000002/state.json") == b"current"
    assert lost.read("job", "rounds.jsonl") == b"0\n1 by the current one\n"


def test_two_first_lines_do_not_overwrite_each_other(bucket: str, client: "S3Client") -> None:
    one, other = (S3Artifacts(bucket, "", client) for _ in range(2))
    one.append("job", "rounds.jsonl", "one")
    other.append("job", "rounds.jsonl", "other")
    one.publish("job")
    with pytest.raises(ArtifactError, match="somebody else changed it"):
        other.publish("job")
    assert client.get_object(Bucket=bucket, Key="job/rounds.jsonl")["Body"].read() == b"one\n"


def test_an_upload_whose_answer_was_lost_is_no_conflict(bucket: str, client: "S3Client") -> None:
    store = S3Artifacts(bucket, "runs", client)
    store.append("job", "rounds.jsonl", "0")
    # What S3 holds when the first of two sendings got through and its answer did not.
    client.put_object(Bucket=bucket, Key="runs/job/rounds.jsonl", Body=b"0\n")
    store.publish("job")
    store.append("job", "rounds.jsonl", "1")
    store.publish("job")
    assert store.read("job", "rounds.jsonl") == b"0\n1\n"


def test_the_local_folder_is_uploaded_now_and_then_and_removed_in_the_end(
    bucket: str, client: "S3Client", spool: Path
) -> None:
    clock = [100.0]
    store = S3Artifacts(bucket, "runs", client, now=lambda: clock[0])
    other = S3Artifacts(bucket, "runs", client)
    events = store.local_folder("job") / "events"
    seen = []
    for text in ("a", "ab", "abc"):
        events.write_text(text)
        store.append("job", "rounds.jsonl", text)
        store.publish("job")
        seen.append(other.read("job", "events"))
        clock[0] += 6
    assert seen == [b"a", b"a", b"abc"]
    assert other.read("job", "rounds.jsonl") == b"a\nab\nabc\n"
    events.write_text("abcd")
    store.release("job")
    assert other.read("job", "events") == b"abcd"
    assert list(spool.iterdir()) == []


def test_more_objects_than_one_page_are_listed_and_deleted(
    bucket: str, client: "S3Client", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "7")  # of the server; AWS's is 1,000
    monkeypatch.setattr("shared.artifacts.s3._DELETE_BATCH", 9)
    store = S3Artifacts(bucket, "runs", client)
    for index in range(20):
        store.write("job", f"videos/{index:04d}", b"")
    assert "NextContinuationToken" in client.list_objects_v2(Bucket=bucket)
    assert len(store.names("job", "videos")) == 20
    store.delete_job("job")
    assert "Contents" not in client.list_objects_v2(Bucket=bucket)


def test_a_bucket_that_is_not_there_is_named_with_the_setting(
    client: "S3Client", spool: Path
) -> None:
    store = S3Artifacts("no-such-bucket", "runs", client)
    missing = r"s3://no-such-bucket/runs/job.*NITRO_ARTIFACTS"
    for use in (
        lambda: store.write("job", "x", b""),
        lambda: store.read("job", "x"),
        lambda: store.names("job", "x"),
        lambda: store.delete_job("job"),
    ):
        with pytest.raises(ArtifactError, match=missing):
            use()
    (store.local_folder("job") / "events").write_text("x")
    store.release("job")
    assert list(spool.iterdir()) == []


def test_a_folder_for_temporary_files_that_cannot_be_used_is_named(
    bucket: str, client: "S3Client", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ArtifactError, match="nowhere.*TMPDIR"):
        S3Artifacts(bucket, "runs", client).append("job", "x", "1")


class _Narrow(BaseHTTPRequestHandler):
    """S3 as a role sees it that may list below a prefix only: what is not there is forbidden."""

    stored: ClassVar[set[str]] = {"runs/job/there"}

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server looks for
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            keys = [key for key in self.stored if key.startswith(query["prefix"][0])]
            entries = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in keys)
            self._answer(200, f"<ListBucketResult>{entries}</ListBucketResult>")
        else:
            self._answer(403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


def test_what_is_missing_and_what_is_forbidden_are_told_apart(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Narrow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        store = open_artifacts("s3://bucket/runs")
        assert store.read("job", "not-there") is None
        assert store.read("job", "the") is None
        with pytest.raises(ArtifactError, match="runs/job/there: .*AccessDenied"):
            store.read("job", "there")
        server.shutdown()
        thread.join()
