"""A job's files over HTTP, in a folder and in a bucket."""

from pathlib import Path

import boto3
import httpx
import pytest

from services.scaler.views.files import MOST_FILES, artifact_links
from shared.artifacts.opening import open_artifacts
from shared.contracts.views.files import ArtifactLinks
from tests.services.scaler.running import Scaler


def listed(scaler: Scaler, job_id: str) -> ArtifactLinks:
    response = scaler.http.get(f"/v1/jobs/{job_id}/artifacts")
    assert response.status_code == 200, response.text
    return ArtifactLinks.model_validate_json(response.content)


def test_files_of_a_folder_are_listed_and_streamed(scaler: Scaler, tmp_path: Path) -> None:
    job_id = scaler.submit().job_id
    assert listed(scaler, job_id).files == ()
    folder = scaler.runs_dir / job_id
    (folder / "checkpoints" / "000001").mkdir(parents=True)
    (folder / "rounds.jsonl").write_bytes(b"{}\n")
    (folder / "checkpoints" / "000001" / "policy one.bin").write_bytes(b"\x00\xff")
    (folder / ".half.tmp").write_bytes(b"half")
    (folder / "secret").symlink_to(tmp_path / "nitro.sqlite3")
    links = listed(scaler, job_id)
    names = ["checkpoints/000001/policy one.bin", "rounds.jsonl"]
    assert [(file.name, file.size) for file in links.files] == [(names[0], 2), (names[1], 3)]
    assert not any(file.presigned for file in links.files)
    for file, data in zip(links.files, (b"\x00\xff", b"{}\n"), strict=True):
        answer = scaler.http.get(file.url)
        assert (answer.status_code, answer.content) == (200, data)
        assert "attachment" in answer.headers["content-disposition"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    rest = scaler.http.get(f"/v1/jobs/{job_id}/artifacts", params={"after": names[0]}).json()
    assert [file["name"] for file in rest["files"]] == names[1:]


def test_more_files_than_a_page_holds_are_paged(scaler: Scaler) -> None:
    folder = scaler.runs_dir / scaler.submit().job_id
    (folder / "a").mkdir(parents=True)
    written = sorted(["a/b", "a-b", "a.b", *(f"a/{n}" for n in range(MOST_FILES))])
    for name in written:
        (folder / name).write_bytes(b"")
    files = scaler.parts.files
    first = artifact_links(files, folder.name)
    rest = artifact_links(files, folder.name, after=first.files[-1].name)
    assert (first.truncated, rest.truncated) == (True, False)
    assert [file.name for file in (*first.files, *rest.files)] == written


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "..%2f..%2fnitro.sqlite3",
        "%2fetc%2fpasswd",
        "secret",
        "checkpoints",
        "a%00b",
        "a" * 300,
    ],
)
def test_nothing_but_a_jobs_own_files_is_given_out(scaler: Scaler, name: str) -> None:
    job_id = scaler.submit().job_id
    folder = scaler.runs_dir / job_id
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "secret").symlink_to(folder.parent.parent / "nitro.sqlite3")
    answer = scaler.http.get(f"/v1/jobs/{job_id}/artifacts/{name}")
    assert answer.status_code == 404, answer.text


@pytest.mark.usefixtures("aws")
def test_files_of_a_bucket_are_links_that_need_no_token_and_are_saved() -> None:
    client = boto3.client("s3")
    client.create_bucket(Bucket="some-runs")
    for job in ("a", "ab"):
        client.put_object(Bucket="some-runs", Key=f"runs/{job}/x/y.txt", Body=job.encode())
    files = open_artifacts("s3://some-runs/runs", region="us-east-1")
    (file,) = artifact_links(files, "a").files
    assert (file.name, file.size, file.presigned) == ("x/y.txt", 1, True)
    fetched = httpx.get(file.url)
    assert fetched.content == b"a"
    assert fetched.headers["content-disposition"] == "attachment"
    client.put_object(Bucket="some-runs", Key="runs/a/x/z.txt", Body=b"")
    (rest,) = artifact_links(files, "a", after=file.name).files
    assert rest.name == "x/z.txt"
    assert "X-Amz-Expires=900" in file.url
