from pathlib import Path

import pytest

from shared.artifacts import ArtifactError, LocalArtifacts


def test_a_file_reads_back_as_it_was_last_written(tmp_path: Path) -> None:
    store = LocalArtifacts(tmp_path)
    store.write("job", "a/b.bin", b"old")
    store.write("job", "a/b.bin", b"new")
    assert store.read("job", "a/b.bin") == b"new"
    assert store.names("job", "a") == ["b.bin"]


def test_a_missing_file_is_none_and_a_missing_folder_empty(tmp_path: Path) -> None:
    store = LocalArtifacts(tmp_path)
    assert store.read("job", "nothing") is None
    assert store.names("job", "nothing") == []
    store.delete("job", "nothing")
    store.delete_job("job")


def test_lines_are_appended_in_order(tmp_path: Path) -> None:
    store = LocalArtifacts(tmp_path)
    store.append("job", "rounds.jsonl", "1")
    store.append("job", "rounds.jsonl", "2")
    assert store.read("job", "rounds.jsonl") == b"1\n2\n"


def test_deleting_a_job_leaves_the_others(tmp_path: Path) -> None:
    store = LocalArtifacts(tmp_path)
    store.write("one", "x", b"1")
    store.write("two", "x", b"2")
    store.delete_job("one")
    assert store.read("one", "x") is None
    assert store.read("two", "x") == b"2"


@pytest.mark.parametrize(
    ("job_id", "name"), [("job", "../other/x"), ("..", "x"), ("job", "/etc/x")]
)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, job_id: str, name: str) -> None:
    store = LocalArtifacts(tmp_path / "runs")
    with pytest.raises(ArtifactError, match="leaves the run's folder"):
        store.write(job_id, name, b"")
    assert list(tmp_path.rglob("x")) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    store = LocalArtifacts(tmp_path / "runs")
    with pytest.raises(ArtifactError, match=r"cannot write .*runs.*choose another runs folder"):
        store.write("job", "x", b"")
    with pytest.raises(ArtifactError, match="cannot write"):
        store.append("job", "x", "line")
    with pytest.raises(ArtifactError, match="cannot write"):
        store.local_folder("job")


def test_a_folder_that_can_be_written_passes_and_is_made(tmp_path: Path) -> None:
    LocalArtifacts(tmp_path / "a" / "runs").require_writable()
    assert list((tmp_path / "a" / "runs").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ArtifactError, match="choose another runs folder") as caught:
        LocalArtifacts(blocked / "runs").require_writable()
    assert str(blocked / "runs") in str(caught.value)
