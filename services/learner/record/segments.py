"""A replay in checkpoints: segments that are only ever added, so that each is written but twice.

    replay/<hash>/rows    rows as they lie in memory, float32; the hash is of these bytes

A checkpoint names the segments that its replay is made of. Saving adds one segment, of the rows
that came since. Once there are SMALL_MOST of them in a row, one larger segment takes their place:
the bytes written over a run are at most twice the replay's, and a checkpoint names some hundred.
Segments go when no checkpoint that a learner may resume from names them.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.artifacts.store import ArtifactStore
from shared.contracts.message import Count, Message

SMALL_MOST = 64
"""Segments of one checkpoint each, before they become one."""
_FOLDER = "replay"


class Replay(Protocol):
    """Rows of float32 that are only ever added, counted from 0, of which the newest are kept.

    `learning.data.transitions` has the real one; readers of checkpoints load no learner.
    """

    added: int
    """Rows ever added."""

    @property
    def first(self) -> int:
        """The oldest row that is kept."""
        ...

    @property
    def capacity(self) -> int:
        """Most rows that are kept."""
        ...

    @property
    def width(self) -> int:
        """Numbers of a row."""
        ...

    def between(self, start: int, end: int) -> NDArray[np.float32]:
        """Return rows `start` to `end`."""
        ...

    def restore(self, added: int, rows: NDArray[np.float32]) -> None:
        """Continue with `added` rows ever added, of which these are the newest."""
        ...


class Segment(Message):
    """Rows `first` to `end` of all that were ever added."""

    sha256: str
    first: Count
    end: Count
    whole: bool = False
    """Whether it took the place of small ones."""


class ReplaySegments:
    """The segments of one job."""

    def __init__(self, artifacts: ArtifactStore, job_id: str) -> None:
        self._artifacts = artifacts
        self._job_id = job_id

    def extended(self, before: Sequence[Segment], replay: Replay) -> tuple[Segment, ...]:
        """Write what is new of a replay; return the segments that it is made of now."""
        kept = [segment for segment in before if segment.end > replay.first]
        first = kept[-1].end if kept else replay.first
        if first == replay.added:
            return tuple(kept)
        small = [segment for segment in kept if not segment.whole]
        merges = len(small) >= SMALL_MOST
        if merges:
            kept = [segment for segment in kept if segment.whole]
            first = max(small[0].first, replay.first)
        data = replay.between(first, replay.added).tobytes()
        added = Segment(
            sha256=hashlib.sha256(data).hexdigest(), first=first, end=replay.added, whole=merges
        )
        self._artifacts.write(self._job_id, _name(added), data)
        return (*kept, added)

    def restore(self, segments: Sequence[Segment], replay: Replay) -> None:
        """Fill an empty replay with what segments hold.

        Raises:
            ValueError: One is missing or damaged, or they are of another replay.
        """
        if not segments:
            return
        parts = []
        for segment in segments:
            data = self._artifacts.read(self._job_id, _name(segment))
            if data is None or hashlib.sha256(data).hexdigest() != segment.sha256:
                wrong = "missing" if data is None else "damaged: its name is not its SHA-256"
                raise ValueError(f"{_name(segment)} is {wrong}")
            if len(data) != 4 * replay.width * (segment.end - segment.first):
                raise ValueError(f"{_name(segment)} holds {len(data)} bytes, of other steps")
            parts.append(np.frombuffer(data, np.float32).reshape(-1, replay.width))
        added = segments[-1].end
        kept = min(added, replay.capacity)
        replay.restore(added, np.concatenate(parts)[-kept:])

    def forget(self, named: Collection[Segment]) -> None:
        """Remove all segments but some."""
        keep = {segment.sha256 for segment in named}
        for name in self._artifacts.names(self._job_id, _FOLDER):
            if name not in keep:
                self._artifacts.delete(self._job_id, f"{_FOLDER}/{name}")


def _name(segment: Segment) -> str:
    return f"{_FOLDER}/{segment.sha256}/rows"
