"""Claims on a job's files: whoever has lost the job writes nothing, whenever it was paused."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.artifacts import claim as claim_module
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.opening import open_artifacts
from shared.artifacts.store import ArtifactError, ArtifactStore, FencedError

pytestmark = pytest.mark.usefixtures("spool")

LINES, STATE = "ledger.jsonl", "checkpoints/000001/state.json"
Act = Callable[[ArtifactStore], object]


def _append(store: ArtifactStore) -> None:
    store.append("job", LINES, "mine again")
    store.publish("job")


ACTS: dict[str, Act] = {
    "write": lambda store: store.write("job", STATE, b"mine again"),
    "append": _append,
    "delete": lambda store: store.delete("job", "checkpoints/000001"),
}


def begun(location: str, *, epoch: int, text: str) -> ArtifactStore:
    """A store that has claimed the job, and begun as a learner does."""
    store = open_artifacts(location)
    store.claim("job", epoch)
    store.write("job", LINES, f"{text}\n".encode())
    store.write("job", STATE, text.encode())
    return store


def content(location: str) -> dict[str, bytes | None]:
    store = open_artifacts(location)
    names = [file.name for file in store.files("job", limit=100)]
    return {name: store.read("job", name) for name in names}


THEIRS = {LINES: b"theirs\n", STATE: b"theirs"}


@pytest.mark.parametrize("act", ACTS)
def test_after_a_takeover_nothing_of_the_one_before_is_written(location: str, act: str) -> None:
    mine = begun(location, epoch=1, text="mine")
    ACTS["append"](mine)
    theirs = begun(location, epoch=2, text="theirs")
    with pytest.raises(FencedError, match="nothing is written"):
        ACTS[act](mine)
    with pytest.raises(FencedError):
        mine.claim("job", 1)
    mine.release("job")
    assert content(location) == THEIRS
    theirs.append("job", LINES, "more")
    theirs.publish("job")
    assert content(location) == {**THEIRS, LINES: b"theirs\nmore\n"}


@pytest.mark.parametrize("act", ACTS)
def test_a_deleted_job_is_not_brought_back(location: str, act: str, tmp_path: Path) -> None:
    mine = begun(location, epoch=1, text="mine")
    open_artifacts(location).delete_job("job")
    with pytest.raises(FencedError, match="deleted"):
        ACTS[act](mine)
    mine.release("job")
    assert content(location) == {}
    assert not (tmp_path / "runs" / "job").exists()


def test_a_claim_that_came_too_late_leaves_nothing(location: str, tmp_path: Path) -> None:
    late = open_artifacts(location)
    late.claim("job", 1)
    late.withdraw("job")
    assert content(location) == {}
    assert not (tmp_path / "runs" / "job").exists()
    theirs = begun(location, epoch=2, text="theirs")
    with pytest.raises(FencedError):
        late.claim("job", 1)
    late.withdraw("job")
    theirs.write("job", STATE, b"theirs")
    assert content(location) == THEIRS


class Pause:
    """Has something happen before the nth call of the operating system in a claim's write."""

    def __init__(self, nth: int, happens: Callable[[], object]) -> None:
        self.calls_left, self.happened, self._happens = nth, False, happens

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if not callable(real):
            return real

        def call(*args: object, **kwargs: object) -> object:
            self.calls_left -= 1
            if self.calls_left < 0 and not self.happened:
                self.happened = True
                self._happens()
            return real(*args, **kwargs)

        return call


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("deleted", [False, True])
def test_a_writer_that_is_paused_at_any_moment_changes_nothing_later(
    act: str, deleted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = 0
    while True:
        runs = str(tmp_path / f"runs-{moments}")
        mine = begun(runs, epoch=1, text="mine")

        def happens(runs: str = runs) -> None:
            with monkeypatch.context() as undone:
                undone.setattr(claim_module, "os", os)
                if deleted:
                    LocalArtifacts(Path(runs)).delete_job("job")
                else:
                    begun(runs, epoch=2, text="theirs")

        pause = Pause(moments, happens)
        with monkeypatch.context() as paused, contextlib.suppress(ArtifactError):
            paused.setattr(claim_module, "os", pause)
            ACTS[act](mine)
        if not pause.happened:
            break
        moments += 1
        mine.release("job")
        assert content(runs) == ({} if deleted else THEIRS), moments
        assert (Path(runs) / "job").exists() is not deleted
    assert moments >= 1


def test_a_writer_that_lost_its_claim_leaves_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = 0
    while True:
        runs = tmp_path / f"runs-{moments}"
        mine = begun(str(runs), epoch=1, text="mine")

        def happens(runs: Path = runs) -> None:
            with monkeypatch.context() as undone:
                undone.setattr(claim_module, "os", os)
                begun(str(runs), epoch=2, text="theirs")

        pause = Pause(moments, happens)
        with monkeypatch.context() as paused, contextlib.suppress(FencedError):
            paused.setattr(claim_module, "os", pause)
            mine.write("job", "checkpoints/000007/state.json", b"mine again")
        if not pause.happened:
            break
        moments += 1
        found = [path.name for path in (runs / "job/checkpoints").glob("000007/*")]
        assert found == ["state.json"] or not (runs / "job/checkpoints/000007").exists(), moments
    assert moments >= 1


@pytest.mark.parametrize(("name", "stays"), [("events.out.tfevents.1", False), ("mine.txt", True)])
def test_a_folder_that_somebody_restored_is_not_removed(
    tmp_path: Path, name: str, stays: bool
) -> None:
    store = begun(str(tmp_path), epoch=1, text="mine")
    LocalArtifacts(tmp_path).delete_job("job")
    for each in ("events.out.tfevents.0", name):
        LocalArtifacts(tmp_path).write("job", each, b"")
    store.release("job")
    found = {path.name for path in tmp_path.glob("job/*")}
    assert found == ({"events.out.tfevents.0", name} if stays else set())
    assert (tmp_path / "job").exists() is stays
