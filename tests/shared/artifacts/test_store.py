"""Artifacts by what they promise, in a folder and in a bucket."""

import os
from pathlib import Path

import pytest

from shared.artifacts.local import LocalArtifacts
from shared.artifacts.opening import open_artifacts
from shared.artifacts.store import ArtifactError, ArtifactStore

pytestmark = pytest.mark.usefixtures("spool")


@pytest.fixture
def store(location: str) -> ArtifactStore:
    return open_artifacts(location)


def test_a_file_reads_back_as_it_was_last_written(store: ArtifactStore) -> None:
    store.write("job", "a/b.bin", b"old")
    store.write("job", "a/b.bin", b"\x00new\xff")
    assert store.read("job", "a/b.bin") == b"\x00new\xff"
    assert store.names("job", "a") == ["b.bin"]


def test_a_missing_file_is_none_and_a_missing_folder_empty(store: ArtifactStore) -> None:
    assert store.read("job", "nothing") is None
    assert store.names("job", "nothing") == []
    store.delete("job", "nothing")
    store.delete_job("job")
    store.publish("job")
    store.release("job")


def test_lines_are_appended_in_order_and_seen_at_once(store: ArtifactStore) -> None:
    store.append("job", "rounds.jsonl", "1")
    store.append("job", "rounds.jsonl", "é")
    assert store.read("job", "rounds.jsonl") == "1\né\n".encode()
    assert store.names("job", "") == ["rounds.jsonl"]


@pytest.mark.parametrize("seal", ["write", "publish"])
def test_appended_lines_are_there_for_everybody_after_the_next_write(
    location: str, store: ArtifactStore, seal: str
) -> None:
    store.write("job", "rounds.jsonl", b"0\n")
    store.append("job", "rounds.jsonl", "1")
    store.append("job", "ledger.jsonl", "a")
    if seal == "write":
        store.write("job", "checkpoints/000001/state.json", b"{}")
    else:
        store.publish("job")
    other = open_artifacts(location)
    assert other.read("job", "rounds.jsonl") == b"0\n1\n"
    assert other.read("job", "ledger.jsonl") == b"a\n"
    store.append("job", "rounds.jsonl", "2")
    store.publish("job")
    assert other.read("job", "rounds.jsonl") == b"0\n1\n2\n"


def test_a_file_that_was_appended_to_can_be_replaced_and_appended_to_again(
    location: str, store: ArtifactStore
) -> None:
    store.append("job", "ledger.jsonl", "dropped")
    store.write("job", "ledger.jsonl", b"kept\n")
    assert store.read("job", "ledger.jsonl") == b"kept\n"
    store.append("job", "ledger.jsonl", "more")
    store.publish("job")
    assert open_artifacts(location).read("job", "ledger.jsonl") == b"kept\nmore\n"


def test_files_a_library_writes_are_there_for_everybody_in_the_end(
    location: str, store: ArtifactStore
) -> None:
    folder = store.local_folder("job")
    assert folder.is_dir()
    (folder / "events.1").write_bytes(b"first")
    (folder / "sub").mkdir()
    (folder / "sub" / "x").write_bytes(b"x")
    store.publish("job")
    other = open_artifacts(location)
    assert other.read("job", "events.1") == b"first"
    (folder / "events.1").write_bytes(b"first and second")
    store.release("job")
    assert other.read("job", "events.1") == b"first and second"
    assert other.read("job", "sub/x") == b"x"
    assert other.names("job", "") == ["events.1", "sub"]


def test_names_are_the_entries_directly_below(store: ArtifactStore) -> None:
    for name in ("checkpoints/000002/a", "checkpoints/000001/a/b", "checkpoints2/x", "z"):
        store.write("job", name, b"")
    assert store.names("job", "checkpoints") == ["000001", "000002"]
    store.delete("job", "checkpoints")
    assert store.names("job", "checkpoints") == []
    assert store.read("job", "checkpoints2/x") == b""


def test_deleting_a_job_leaves_the_others(store: ArtifactStore) -> None:
    for job_id in ("one", "one-more", "two"):
        store.write(job_id, "x", job_id.encode())
        store.append(job_id, "rounds.jsonl", "1")
    store.delete_job("one")
    assert store.read("one", "x") is None
    assert store.read("one", "rounds.jsonl") is None
    assert store.names("one", "") == []
    assert store.read("one-more", "x") == b"one-more"
    assert store.read("two", "rounds.jsonl") == b"1\n"


@pytest.mark.parametrize(
    ("job_id", "name"),
    [("job", "../other/x"), ("..", "x"), ("job", "/etc/x"), ("job", "a/../../x")],
)
def test_names_that_leave_the_folder_are_refused(
    store: ArtifactStore, tmp_path: Path, job_id: str, name: str
) -> None:
    with pytest.raises(ArtifactError, match="leaves the run's folder"):
        store.write(job_id, name, b"")
    with pytest.raises(ArtifactError, match="leaves the run's folder"):
        store.append(job_id, name, "line")
    assert list(tmp_path.rglob("x")) == []


def test_a_run_is_found_where_it_is_said_to_be(location: str, store: ArtifactStore) -> None:
    assert store.locate("job") == f"{location}/job"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    store = LocalArtifacts(tmp_path / "runs")
    for use in (
        lambda: store.write("job", "x", b""),
        lambda: store.append("job", "x", "line"),
        lambda: store.local_folder("job"),
        store.require_writable,
    ):
        with pytest.raises(ArtifactError, match=r"cannot write .*runs.*choose another runs folder"):
            use()


@pytest.mark.parametrize("location", ["s3://", "s3://B/x", "s3:///runs", "https://bucket/runs"])
def test_a_malformed_location_is_refused(location: str) -> None:
    with pytest.raises(ArtifactError, match="NITRO_ARTIFACTS .*s3://bucket/prefix"):
        open_artifacts(location)


def test_a_folder_that_can_be_written_passes_and_is_made(tmp_path: Path) -> None:
    LocalArtifacts(tmp_path / "a" / "runs").require_writable()
    assert list((tmp_path / "a" / "runs").iterdir()) == []


@pytest.mark.parametrize("late", [1, 3])
def test_files_that_come_while_their_job_is_deleted_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """A learner writes the bill after it has reported the end."""
    store = LocalArtifacts(tmp_path)
    store.write("job", "job.json", b"{}")
    write_before_each_rmdir(store, monkeypatch, times=late)
    store.delete_job("job")
    assert not (tmp_path / "job").exists()


def test_a_folder_that_fills_for_ever_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalArtifacts(tmp_path)
    store.write("job", "job.json", b"{}")
    write_before_each_rmdir(store, monkeypatch, times=1000)
    with pytest.raises(ArtifactError, match="new files keep coming; delete the job again"):
        store.delete_job("job")


def write_before_each_rmdir(
    store: LocalArtifacts, monkeypatch: pytest.MonkeyPatch, *, times: int
) -> None:
    """Have a file arrive between a folder's listing and its removal, so many times."""
    remove, late = os.rmdir, iter(range(times))

    def rmdir(path: str, *, dir_fd: int | None = None) -> None:
        if next(late, None) is not None:
            store.write("job", "cost.json", b"late")
        remove(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
