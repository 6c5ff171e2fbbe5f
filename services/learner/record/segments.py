"""A replay in checkpoints: append-only segments, so that each row is written at most twice.

    replay/<hash>/rows    rows as they lie in memory, float32; the hash is of these bytes

A checkpoint names the segments of its replay. Saving adds one segment with the new rows. SMALL_MOST
small segments are merged into a larger one. So a run writes at most twice the replay's bytes, and a
checkpoint names some hundred segments. Segments without a checkpoint are removed.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.artifacts.store import ArtifactStore
from shared.contracts.message import Count, Message

SMALL_MOST = 64
"""Small segments before a merge."""
_FOLDER = "replay"


class Replay(Protocol):
    """An append-only buffer of float32 rows, counted from 0, that keeps the newest.

    `learning.data.transitions` has the real one; readers of checkpoints load no learner.
    """

    added: int
    """Rows ever added."""

    @property
    def first(self) -> int:
        """Index of the oldest kept row."""
        ...

    @property
    def capacity(self) -> int:
        """Most kept rows."""
        ...

    @property
    def width(self) -> int:
        """Numbers per row."""
        ...

    def between(self, start: int, end: int) -> NDArray[np.float32]:
        """Return rows `start` to `end`."""
        ...

    def restart(self, at: int) -> None:
        """Drop all rows and count from `at`, the index of the row that is added next."""
        ...

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add rows; they replace the oldest."""
        ...


class Segment(Message):
    """Rows `first` to `end` of all rows ever added."""

    sha256: str
    first: Count
    end: Count
    whole: bool = False
    """Whether it is a merged segment."""


class ReplaySegments:
    """The segments of one job."""

    def __init__(self, artifacts: ArtifactStore, job_id: str) -> None:
        self._artifacts = artifacts
        self._job_id = job_id

    def extended(self, before: Sequence[Segment], replay: Replay) -> tuple[Segment, ...]:
        """Write a replay's new rows; return its segments."""
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
        """Fill an empty replay from segments. Only one of them is in memory at a time.

        Raises:
            ValueError: A segment is missing or damaged, or they are of another replay.
        """
        if not segments:
            return
        added = segments[-1].end
        kept, steps = min(added, replay.capacity), added - segments[0].first
        if steps < kept:
            raise ValueError(f"the replay's segments hold {steps} steps, expected {kept}")
        replay.restart(segments[0].first)
        for segment in segments:
            if segment.first != replay.added:
                raise ValueError(f"{_name(segment)} does not follow step {replay.added}")
            replay.add(self._rows(segment, replay.width))

    def _rows(self, segment: Segment, width: int) -> NDArray[np.float32]:
        data = self._artifacts.read(self._job_id, _name(segment))
        if data is None or hashlib.sha256(data).hexdigest() != segment.sha256:
            wrong = "missing" if data is None else "damaged: its name is not its SHA-256"
            raise ValueError(f"{_name(segment)} is {wrong}")
        if len(data) != 4 * width * (segment.end - segment.first):
            raise ValueError(f"{_name(segment)} holds {len(data)} bytes, of other steps")
        return np.frombuffer(data, np.float32).reshape(-1, width)

    def forget(self, named: Collection[Segment]) -> None:
        """Remove all segments except for `named`."""
        keep = {segment.sha256 for segment in named}
        for name in self._artifacts.names(self._job_id, _FOLDER):
            if name not in keep:
                self._artifacts.delete(self._job_id, f"{_FOLDER}/{name}")


def _name(segment: Segment) -> str:
    return f"{_FOLDER}/{segment.sha256}/rows"
