"""Checkpoints: the complete state for an exact resume.

A checkpoint is a folder `checkpoints/NNNNNN/`, named after the round that comes next, with the
algorithm's arrays, the policy alone (for evaluation and export) and `state.json`. The last is
written last and has the SHA-256 of the others: a folder without it is an unfinished write and is
ignored. No pickle: arrays are in the safetensors layout. A replay is stored next to the folders, in
segments that checkpoints share.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, ValidationError

from services.learner.record.segments import SMALL_MOST, Replay, ReplaySegments, Segment
from shared.artifacts.store import CHECKPOINTS, ArtifactStore
from shared.contracts.message import Count, Message
from shared.contracts.rounds import Curvature, RoundResult
from shared.trajectory import codec

_FORMAT = "nitro-checkpoint/1"
_STATE = "state.json"
_ARRAYS = "state.safetensors"
_POLICY = "policy.safetensors"
_STREAMS = "streams.zst"
_MAX_BYTES = 8 << 30

Scalar = bool | int | float | str


class CheckpointError(RuntimeError):
    """A checkpoint is unusable; the message names the file and the fix."""


class OpenRound(Message):
    """A round that was open when another one ended, with its used trajectories."""

    round: Count
    policy_version: Count
    """Version of its actors' policy."""
    curvature: Curvature | None = None
    """The curvature in its request."""
    taken: tuple[Count, ...] = ()
    """Actors whose trajectories were used."""
    env_steps: Count = 0
    """Steps of those."""
    episode_returns: tuple[FiniteFloat, ...] = ()
    """Training episodes that ended inside these trajectories."""
    dropped_episodes: Count = 0
    """Their episodes that were sampled again because of a non-finite number."""


class RunState(Message):
    """The state of training between two rounds."""

    next_round: Count
    policy_version: Count
    curvature: Curvature | None
    """Measurement of the current policy, for the next round's request."""
    previous: RoundResult | None
    """Result of the last round, for the request at its end."""
    open_rounds: tuple[OpenRound, ...] = ()
    """Later requested rounds, in order; none without overlap."""
    empty_rounds: Count = 0
    """Number of consecutive rounds without trajectories, up to the last; overlapping rounds only.
    """


class _File(Message):
    sha256: str
    size: Count


class _Manifest(Message):
    format: Annotated[str, Field(pattern=f"^{_FORMAT}$")]
    run: RunState
    algorithm: dict[str, Scalar]
    files: dict[str, _File]
    replay: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One saved state."""

    run: RunState
    arrays: dict[str, NDArray[np.generic]]
    """The algorithm's arrays: weights, optimiser moments, random states."""
    scalars: dict[str, Scalar]
    """The algorithm's scalars, such as the KL coefficient."""
    policy: bytes
    """The policy as actors fetch it."""
    earlier_policies: dict[int, bytes] = field(default_factory=dict)
    """Policies of open rounds' actors, by version."""
    streams: bytes = b""
    """Snapshots of continued episodes; empty without any."""
    replay: tuple[Segment, ...] = ()
    """Segments of the algorithm's replay; empty without one."""


class CheckpointStore:
    """The checkpoints of one job."""

    def __init__(self, artifacts: ArtifactStore, job_id: str, *, keep: int) -> None:
        self._artifacts = artifacts
        self._job_id = job_id
        self._keep = keep
        self._segments = ReplaySegments(artifacts, job_id)
        self._replay: tuple[Segment, ...] = ()
        """Step of the newest checkpoint."""

    def save(
        self, checkpoint: Checkpoint, *, replay: Replay | None = None, best: int | None = None
    ) -> None:
        """Write a checkpoint, then remove the oldest ones beyond `keep`.

        The one of the round `best` always stays. A given replay is saved with it; the checkpoint's
        own segments are ignored.
        """
        if replay is not None:
            self._replay = self._segments.extended(self._replay, replay)
        folder = _folder(checkpoint.run.next_round)
        self._artifacts.delete(self._job_id, folder)
        contents = {
            _ARRAYS: codec.encode_raw(checkpoint.arrays, {}),
            _POLICY: checkpoint.policy,
            **{_earlier(v): data for v, data in checkpoint.earlier_policies.items()},
            **({_STREAMS: checkpoint.streams} if checkpoint.streams else {}),
        }
        for name, data in contents.items():
            self._artifacts.write(self._job_id, f"{folder}/{name}", data)
        manifest = _Manifest(
            format=_FORMAT,
            run=checkpoint.run,
            algorithm=checkpoint.scalars,
            files={name: _fingerprint(data) for name, data in contents.items()},
            replay=self._replay,
        )
        text = json.dumps(manifest.model_dump(mode="json"), indent=2)
        self._artifacts.write(self._job_id, f"{folder}/{_STATE}", text.encode())
        for name in self._names()[: -self._keep]:
            if best is None or f"{CHECKPOINTS}/{name}" != _folder(best):
                self._artifacts.delete(self._job_id, f"{CHECKPOINTS}/{name}")
        if self._replay and checkpoint.run.next_round % SMALL_MOST == 0:
            found = map(self._manifest_of, self._names()[-self._keep :])
            self._segments.forget([s for each in found if each is not None for s in each.replay])

    def restore_replay(self, checkpoint: Checkpoint, replay: Replay) -> None:
        """Fill an empty replay from the newest checkpoint.

        Raises:
            ValueError: The checkpoint has another replay, or a segment is missing or damaged.
        """
        self._segments.restore(checkpoint.replay, replay)
        self._replay = checkpoint.replay

    def latest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint, or None if the job has none.

        Raises:
            CheckpointError: The newest complete checkpoint is damaged.
        """
        for name in reversed(self._names()):
            checkpoint = self._read(f"{CHECKPOINTS}/{name}")
            if checkpoint is not None:
                return checkpoint
        return None

    def at(self, next_round: int) -> Checkpoint | None:
        """Return the complete checkpoint of a round, or None.

        Raises:
            CheckpointError: It is damaged.
        """
        return self._read(_folder(next_round))

    def unfit(self, checkpoint: Checkpoint, why: ValueError) -> CheckpointError:
        """Return the error of an intact checkpoint that does not fit the job's algorithm."""
        place = f"{self._artifacts.locate(self._job_id)}/{_folder(checkpoint.run.next_round)}"
        return CheckpointError(
            f"checkpoint {place} does not fit the job: {why}. If another version of Nitro wrote "
            "it, resume with that one, or delete the folder to resume from the checkpoint before it"
        )

    def _names(self) -> list[str]:
        """Return the folders, oldest first; names grow longer after a million rounds."""
        return sorted(self._artifacts.names(self._job_id, CHECKPOINTS), key=lambda n: (len(n), n))

    def _read(self, folder: str) -> Checkpoint | None:
        state = self._artifacts.read(self._job_id, f"{folder}/{_STATE}")
        return None if state is None else self._load(folder, state)

    def _manifest_of(self, name: str) -> _Manifest | None:
        state = self._artifacts.read(self._job_id, f"{CHECKPOINTS}/{name}/{_STATE}")
        return None if state is None else _Manifest.read(state)

    def _load(self, folder: str, state: bytes) -> Checkpoint:
        try:
            # A newer version may have written more.
            manifest = _Manifest.read(state)
        except ValidationError as error:
            wrong = "; ".join(str(entry["msg"]) for entry in error.errors()[:3])
            raise self._damaged(folder, _STATE, f"not a checkpoint manifest: {wrong}") from error
        contents = {}
        versions = sorted({opened.policy_version for opened in manifest.run.open_rounds})
        streams = {_STREAMS} & manifest.files.keys()
        for name in (_ARRAYS, _POLICY, *map(_earlier, versions), *streams):
            data = self._artifacts.read(self._job_id, f"{folder}/{name}")
            if data is None:
                raise self._damaged(folder, name, "missing")
            if manifest.files.get(name) != _fingerprint(data):
                raise self._damaged(folder, name, "its SHA-256 does not match state.json")
            contents[name] = data
        try:
            payload = codec.decode_raw(contents[_ARRAYS], max_bytes=_MAX_BYTES)
        except codec.CodecError as error:
            raise self._damaged(folder, _ARRAYS, str(error)) from error
        return Checkpoint(
            run=manifest.run,
            arrays=payload.arrays,
            scalars=manifest.algorithm,
            policy=contents[_POLICY],
            earlier_policies={version: contents[_earlier(version)] for version in versions},
            streams=contents.get(_STREAMS, b""),
            replay=manifest.replay,
        )

    def _damaged(self, folder: str, name: str, why: str) -> CheckpointError:
        place = f"{self._artifacts.locate(self._job_id)}/{folder}"
        return CheckpointError(
            f"checkpoint file {place}/{name} is damaged: {why}. Restore the file, or delete the "
            f"folder {place} to resume from the checkpoint before it"
        )


def _folder(next_round: int) -> str:
    return f"{CHECKPOINTS}/{next_round:06d}"


def _earlier(policy_version: int) -> str:
    return f"policy-{policy_version}.safetensors"


def _fingerprint(data: bytes) -> _File:
    return _File(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
