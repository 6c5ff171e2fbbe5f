"""A replay of single steps: the newest, each with its successor, in a ring of rows.

A row is a step as a critic learns from it: the observation, the next observation, the action, the
reward, and whether anything follows (0 where the episode terminated, else 1). An episode cut by a
time limit counts as continuing: its last step's next observation is the true last one, before the
reset.

Legend: T steps; B environments; F truncated episodes; O, A sizes; W numbers of a row, 2 O + A + 2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.trajectory.columns import Experience

Rows = NDArray[np.float32]


def transitions(experience: Experience) -> Rows:
    """Return an actor's steps as rows # [T * B, W], environment by environment."""
    steps, envs = experience.reward.shape
    seen = experience.observation.reshape(steps + 1, envs, -1)
    following = seen[1:].astype(np.float32)  # a copy
    cut = experience.final_rows
    following[cut] = experience.final_observation.reshape(len(cut[0]), seen.shape[2])
    parts = (
        seen[:-1],
        following,
        experience.action.reshape(steps, envs, -1),
        experience.reward[..., np.newaxis],
        ~experience.terminated[..., np.newaxis],
    )
    rows = np.concatenate([part.astype(np.float32) for part in parts], axis=2)
    return np.ascontiguousarray(rows.transpose(1, 0, 2)).reshape(steps * envs, -1)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Positions of a row's columns."""

    observation_size: int
    action_size: int

    @property
    def observation(self) -> slice:
        """The observation."""
        return slice(0, self.observation_size)

    @property
    def following(self) -> slice:
        """The next observation."""
        return slice(self.observation_size, 2 * self.observation_size)

    @property
    def action(self) -> slice:
        """The action, in [-1, 1]."""
        return slice(2 * self.observation_size, self.reward)

    @property
    def reward(self) -> int:
        """The reward."""
        return 2 * self.observation_size + self.action_size

    @property
    def goes_on(self) -> int:
        """Whether the episode continues."""
        return self.reward + 1

    @property
    def width(self) -> int:
        """Numbers of a row, W."""
        return self.reward + 2


class Replay:
    """The newest `capacity` of all rows ever added, which are counted from 0."""

    def __init__(self, *, width: int, capacity: int) -> None:
        self._rows = np.empty((capacity, width), np.float32)  # pages are allocated when filled
        self.added = 0
        """Rows ever added."""
        self._start = 0

    @property
    def capacity(self) -> int:
        """Most rows that are kept."""
        return len(self._rows)

    @property
    def first(self) -> int:
        """The oldest row that is kept."""
        return max(self._start, self.added - self.capacity)

    @property
    def width(self) -> int:
        """Numbers of a row, W."""
        return self._rows.shape[1]

    def add(self, rows: Rows) -> None:
        """Add rows # [N, W]; they replace the oldest."""
        kept = rows[-self.capacity :]
        start = self.added + len(rows) - len(kept)
        self._rows[self._places(start, start + len(kept))] = kept
        self.added += len(rows)

    def between(self, start: int, end: int) -> Rows:
        """Return a copy of rows `start` to `end`, which must be kept # [end - start, W]."""
        if not self.first <= start <= end <= self.added:
            raise ValueError(f"rows {start} to {end} are not kept: {self.first} to {self.added}")
        return self._rows[self._places(start, end)]

    def restart(self, at: int) -> None:
        """Drop all rows and count from `at`, the index of the row that is added next."""
        self.added = self._start = at

    def drawn(self, choices: NDArray[np.float64]) -> Rows:
        """Return rows chosen uniformly by numbers in [0, 1) of any shape # [..., W]."""
        kept = self.added - self.first
        return self._rows[(choices * kept).astype(np.int64)]

    def _places(self, start: int, end: int) -> NDArray[np.int64]:
        return np.arange(start, end) % self.capacity
