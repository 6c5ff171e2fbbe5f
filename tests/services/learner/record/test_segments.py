"""A replay in checkpoints: written at most twice, restored to the bit, damage named."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from learning.data.transitions import Replay
from services.learner.record.checkpoint import Checkpoint, CheckpointStore, RunState
from services.learner.record.segments import SMALL_MOST
from shared.artifacts.local import LocalArtifacts

WIDTH, ROWS = 6, 10


class Counting(LocalArtifacts):
    """Counts what is written of replays."""

    written = 0

    def write(self, job_id: str, name: str, data: bytes) -> None:
        self.written += len(data) if name.startswith("replay/") else 0
        super().write(job_id, name, data)


def _save(store: CheckpointStore, replay: Replay, index: int, rows: int = ROWS) -> None:
    replay.add(np.random.default_rng(index).standard_normal((rows, replay.width), np.float32))
    run = RunState(next_round=index + 1, policy_version=index, curvature=None, previous=None)
    store.save(Checkpoint(run=run, arrays={}, scalars={}, policy=b"policy"), replay=replay)


def _restored(root: Path, capacity: int) -> Replay:
    store, replay = CheckpointStore(LocalArtifacts(root), "job", keep=2), _replay(capacity)
    newest = store.latest()
    assert newest is not None
    store.restore_replay(newest, replay)
    return replay


def _replay(capacity: int) -> Replay:
    return Replay(width=WIDTH, capacity=capacity)


@pytest.mark.parametrize("capacity", [10_000, 300])
def test_it_is_written_at_most_twice_and_restored_to_the_bit(tmp_path: Path, capacity: int) -> None:
    artifacts, replay = Counting(tmp_path), _replay(capacity)
    store = CheckpointStore(artifacts, "job", keep=2)
    for index in range(3 * SMALL_MOST):
        _save(store, replay, index)
        if index == 100:  # another learner goes on
            replay = _restored(tmp_path, capacity)
            store = CheckpointStore(artifacts, "job", keep=2)
            newest = store.latest()
            assert newest is not None
            store.restore_replay(newest, _replay(capacity))
    found = _restored(tmp_path, capacity)
    assert (found.added, found.first) == (replay.added, replay.first)
    kept = replay.first, replay.added
    np.testing.assert_array_equal(found.between(*kept), replay.between(*kept))
    assert artifacts.written <= 2 * replay.added * WIDTH * 4
    assert len([*(tmp_path / "job/replay").iterdir()]) <= SMALL_MOST + 3


def test_segments_that_an_older_checkpoint_names_stay_with_it(tmp_path: Path) -> None:
    store, replay = CheckpointStore(LocalArtifacts(tmp_path), "job", keep=2), _replay(10_000)
    for index in range(SMALL_MOST + 1):
        _save(store, replay, index)
    before = replay.added - ROWS
    newest = f"checkpoints/{SMALL_MOST + 1:06d}"
    LocalArtifacts(tmp_path).delete("job", newest)
    found = _restored(tmp_path, 10_000)
    np.testing.assert_array_equal(found.between(0, before), replay.between(0, before))


def test_only_one_segment_is_in_memory_while_a_replay_is_restored(tmp_path: Path) -> None:
    rows, parts = 2000, 20
    store, replay = CheckpointStore(LocalArtifacts(tmp_path), "job", keep=2), _replay(rows * parts)
    for index in range(parts):
        _save(store, replay, index, rows)
    newest, found = store.latest(), _replay(rows * parts)
    assert newest is not None
    segment = rows * WIDTH * 4
    tracemalloc.start()
    store.restore_replay(newest, found)
    peak = tracemalloc.get_traced_memory()[1]  # beside the ring, which was there before
    tracemalloc.stop()
    np.testing.assert_array_equal(found.between(0, found.added), replay.between(0, replay.added))
    assert peak < 3 * segment


def test_segments_of_another_replay_are_refused(tmp_path: Path) -> None:
    store, replay = CheckpointStore(LocalArtifacts(tmp_path), "job", keep=2), _replay(ROWS)
    for index in range(3):
        _save(store, replay, index)
    with pytest.raises(ValueError, match=f"hold {ROWS} steps, expected {3 * ROWS}"):
        _restored(tmp_path, 100)
    wider = Replay(width=WIDTH + 1, capacity=ROWS)
    newest = store.latest()
    assert newest is not None
    with pytest.raises(ValueError, match="bytes, of other steps"):
        store.restore_replay(newest, wider)


@pytest.mark.parametrize(("harm", "told"), [("remove", "missing"), ("change", "SHA-256")])
def test_damage_is_named(tmp_path: Path, harm: str, told: str) -> None:
    store, replay = CheckpointStore(LocalArtifacts(tmp_path), "job", keep=2), _replay(100)
    _save(store, replay, 0)
    (segment,) = (tmp_path / "job/replay").glob("*/rows")
    segment.unlink() if harm == "remove" else segment.write_bytes(bytes(ROWS * WIDTH * 4))
    with pytest.raises(ValueError, match=told):
        _restored(tmp_path, 100)
