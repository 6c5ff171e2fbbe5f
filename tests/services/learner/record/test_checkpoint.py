"""Checkpoints are whole or nothing, and damage is found and named."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from services.learner.record.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointStore,
    OpenRound,
    RunState,
)
from shared.artifacts.local import LocalArtifacts
from shared.contracts.rounds import Curvature


def _checkpoint(next_round: int) -> Checkpoint:
    rng = np.random.default_rng(next_round)
    return Checkpoint(
        run=RunState(
            next_round=next_round,
            policy_version=next_round,
            curvature=Curvature(
                lambda_max=1.5,
                lambda_min=-0.25,
                residual=0.001,
                matvecs=12,
                num_samples=512,
                elapsed_s=0.04,
            ),
            previous=None,
        ),
        arrays={
            "weight": rng.standard_normal((3, 4)).astype(np.float32),
            "random_state": rng.integers(0, 255, 16, dtype=np.uint8),
        },
        scalars={"kl_coefficient": 0.2, "steps": 7, "distribution": "gaussian"},
        policy=b"policy bytes",
        streams=b"where episodes were left" if next_round % 2 == 0 else b"",
    )


def _store(root: Path, keep: int = 3) -> CheckpointStore:
    return CheckpointStore(LocalArtifacts(root), "job", keep=keep)


def test_what_was_saved_is_what_is_restored(tmp_path: Path) -> None:
    saved = _checkpoint(4)
    _store(tmp_path).save(saved)
    restored = _store(tmp_path).latest()
    assert restored is not None
    assert restored.run == saved.run
    assert restored.scalars == saved.scalars
    assert restored.policy == saved.policy
    assert restored.streams == saved.streams
    assert restored.arrays.keys() == saved.arrays.keys()
    for name, array in saved.arrays.items():
        assert restored.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(restored.arrays[name], array)


def test_the_arrays_are_plain_safetensors(tmp_path: Path) -> None:
    saved = _checkpoint(1)
    _store(tmp_path).save(saved)
    data = (tmp_path / "job/checkpoints/000001/state.safetensors").read_bytes()
    np.testing.assert_array_equal(load(data)["weight"], saved.arrays["weight"])


def test_a_job_without_checkpoint_has_none(tmp_path: Path) -> None:
    assert _store(tmp_path).latest() is None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    store = _store(tmp_path, keep=2)
    for k in range(1, 6):
        store.save(_checkpoint(k))
    names = sorted(p.name for p in (tmp_path / "job/checkpoints").iterdir())
    assert names == ["000004", "000005"]


def test_an_unfinished_write_counts_as_nothing(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.save(_checkpoint(1))
    store.save(_checkpoint(2))
    (tmp_path / "job/checkpoints/000002/state.json").unlink()
    restored = store.latest()
    assert restored is not None
    assert restored.run.next_round == 1


@pytest.mark.parametrize("name", ["state.safetensors", "policy.safetensors"])
def test_damaged_bytes_are_found_and_the_file_and_fix_named(tmp_path: Path, name: str) -> None:
    store = _store(tmp_path)
    store.save(_checkpoint(3))
    path = tmp_path / "job/checkpoints/000003" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        store.latest()
    assert str(path) in str(caught.value)
    assert "SHA-256" in str(caught.value)
    assert "delete the folder" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.save(_checkpoint(3))
    (tmp_path / "job/checkpoints/000003/policy.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"policy\.safetensors is damaged: missing"):
        store.latest()


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"format": "pickle"})])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    store = _store(tmp_path)
    store.save(_checkpoint(3))
    (tmp_path / "job/checkpoints/000003/state.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"state\.json is damaged"):
        store.latest()


def test_what_a_newer_version_wrote_beside_it_is_passed_over(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.save(_checkpoint(3))
    path = tmp_path / "job/checkpoints/000003/state.json"
    manifest = json.loads(path.read_text())
    manifest["new"] = manifest["run"]["new"] = manifest["run"]["curvature"]["new"] = {"a": 1}
    path.write_text(json.dumps(manifest))
    restored = store.latest()
    assert restored is not None
    assert restored.run == _checkpoint(3).run


def test_policies_of_open_rounds_are_kept_with_what_was_used_of_them(tmp_path: Path) -> None:
    opened = OpenRound(
        round=5, policy_version=9, taken=(0, 3), env_steps=512, episode_returns=(1.5,)
    )
    whole = _checkpoint(5)
    run = whole.run.model_copy(update={"open_rounds": (opened,), "empty_rounds": 1})
    _store(tmp_path).save(replace(whole, run=run, earlier_policies={9: b"earlier"}))
    restored = _store(tmp_path).latest()
    assert restored is not None
    assert restored.run == run
    assert restored.earlier_policies == {9: b"earlier"}
    damaged = tmp_path / "job" / "checkpoints" / "000005" / "policy-9.safetensors"
    damaged.write_bytes(b"other")
    with pytest.raises(CheckpointError, match=r"policy-9\.safetensors"):
        _store(tmp_path).latest()


def test_the_millionth_round_is_newer_than_the_one_before(tmp_path: Path) -> None:
    store = _store(tmp_path, keep=2)
    for next_round in (999_998, 999_999, 1_000_000, 1_000_001):
        store.save(_checkpoint(next_round))
        latest = store.latest()
        assert latest is not None
        assert latest.run.next_round == next_round
    assert len(LocalArtifacts(tmp_path).names("job", "checkpoints")) == 2
