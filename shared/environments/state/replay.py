"""An episode saved as its seed and actions, so that another process can resume it by replay.

Many simulators cannot save their state, but repeat an episode from the same seed and actions. So
the replay holds the seed of the reset, all actions since, and a checksum of all observations. The
next process repeats the episode. Equal checksums and returns prove that it reached the same point.

An environment may draw from Python's or NumPy's global generators instead of its own. These are
seeded at every reset, which suffices if a process steps one environment at a time. With more
(`envs_per_actor`), a job does not replay such an environment (`draws_globally`).
"""

import copy
import random
import zlib
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import DTypeLike, NDArray

from shared.environments.state.keeper import StateError
from shared.environments.state.snapshot import no_state, packed
from shared.trajectory import codec

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions

_MAX_RAW_BYTES = 4 * 2**20
_METADATA = {"replay": "1"}
"""Kind and version of the format."""
_NAMES = {"actions", "numbers", "returns"}
_RECURRENT = "recurrent_state"


class ReplayError(StateError):
    """The same seed and actions gave another episode."""


@dataclass(slots=True, eq=False)
class Replay:
    """An episode so far."""

    seed: int
    """Seed of its reset."""
    checksum: int = 0
    """CRC-32 of all observations, including the first."""
    actions: list[Any] = field(default_factory=list)
    """Actions as the environment took them."""
    episode_return: float = 0.0
    """Undiscounted return so far."""
    discounted_return: float = 0.0
    """Sum of the rewards so far, each discounted once per step that followed."""
    recurrent_state: NDArray[Any] = field(default_factory=no_state)
    """A recurrent policy's state at this point # [S] float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An environment's position in an episode."""

    place: bytes
    """The encoded episode up to this position."""
    observation: NDArray[Any]
    """The observation that the next action answers."""
    generators: tuple[Any, ...] = field(default_factory=lambda: (random.getstate(), _numpy_state()))
    """States of Python's and NumPy's global generators."""

    def restore_generators(self) -> None:
        """Restore the states of the global generators."""
        python, ours = self.generators
        random.setstate(python)
        np.random.set_state(ours)  # noqa: NPY002 - the one that environments draw from


def seed_generators(seed: int) -> None:
    """Seed Python's and NumPy's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the one that environments draw from


def _numpy_state() -> Any:  # noqa: ANN401 - NumPy's own
    return np.random.get_state()  # noqa: NPY002 - as above


class Recorder:
    """Steps an environment and records how to repeat the episode."""

    def __init__(self, env: Env, *, dtype: DTypeLike) -> None:
        """Take an environment, which must be reset before it is stepped.

        Args:
            env: The environment.
            dtype: Type of the policy's observations.
        """
        self._env = env
        self._dtype = dtype
        self.episode = Replay(seed=0)
        self.num_repeated = 0
        """Steps repeated so far over all episodes."""

    def reset(self, seed: int) -> Any:  # noqa: ANN401 - whatever the environment gives
        """Begin an episode; the seed determines everything random in it."""
        seed_generators(seed)
        observation, info = self._env.reset(seed=seed)
        self.episode = Replay(seed, self._checksum(observation, 0))
        return observation, info

    def step(self, action: Any) -> Any:  # noqa: ANN401
        """Step the environment, which may change its action in place."""
        episode = self.episode
        episode.actions.append(copy.copy(action))
        taken = self._env.step(action)
        episode.checksum = self._checksum(taken[0], episode.checksum)
        return taken

    def take_up(self, left: bytes, standing: Standing | None, *, discount: float) -> Any:  # noqa: ANN401
        """Resume an episode; return the observation that its next action answers.

        Args:
            left: The encoded episode.
            standing: The environment's position; if it matches `left`, nothing is repeated.
            discount: Discount factor of the episode's discounted return.

        Raises:
            StateError: The episode cannot be decoded, or its repetition differs.
        """
        episode = decode(left)
        if standing is None or standing.place != left:
            return self.repeat(episode, discount=discount)
        standing.restore_generators()
        self.episode = episode
        return standing.observation

    def repeat(self, left: Replay, *, discount: float) -> Any:  # noqa: ANN401
        """Repeat an episode; return the observation that its next action answers.

        Args:
            left: The episode.
            discount: Discount factor of its discounted return.

        Raises:
            ReplayError: The repetition differs; the environment must be reset.
        """
        observation, _ = self.reset(left.seed)
        total = discounted = 0.0
        for action in left.actions:
            observation, reward, terminated, truncated, _ = self.step(copy.copy(action))
            self.num_repeated += 1
            total += float(reward)
            discounted = discount * discounted + float(reward)
            if terminated or truncated:
                raise ReplayError(
                    f"repeated, the episode ends after {len(self.episode.actions)} of "
                    f"{len(left.actions)} steps"
                )
        if self.episode.checksum != left.checksum:
            raise ReplayError("repeated, the episode has other observations")
        if (total, discounted) != (left.episode_return, left.discounted_return):
            raise ReplayError("repeated, the episode has other rewards")
        self.episode.episode_return, self.episode.discounted_return = total, discounted
        self.episode.recurrent_state = left.recurrent_state
        return observation

    def _checksum(self, observation: Any, before: int) -> int:  # noqa: ANN401
        return zlib.crc32(np.ascontiguousarray(observation, self._dtype).data, before)


def encode(replay: Replay, *, longest: int) -> bytes:
    """Return an episode of at most `longest` steps as bytes; equal episodes give equal bytes.

    Raises:
        StateError: It is too long or too large, or its actions are of an unsupported type.
    """
    if len(replay.actions) > longest:
        raise StateError(
            f"its {len(replay.actions)} steps are too many to repeat: {longest} are not"
        )
    actions = np.array(replay.actions)
    if actions.dtype.kind in "iu":
        actions = actions.astype(np.int64)
    arrays: dict[str, codec.Array] = {
        "actions": actions,
        "numbers": np.array((replay.seed, replay.checksum), np.int64),
        "returns": np.array((replay.episode_return, replay.discounted_return)),
    }
    if replay.recurrent_state.size:
        arrays[_RECURRENT] = replay.recurrent_state
    return packed(arrays, _METADATA, what="its actions take")


def decode(data: bytes) -> Replay:
    """Return the episode that `encode` took.

    Raises:
        StateError: The bytes are damaged, too large, or not an episode of this version.
    """
    try:
        payload = codec.decode(data, max_bytes=_MAX_RAW_BYTES)
    except codec.CodecError as error:
        raise StateError(f"no episode to repeat: {error}") from error
    arrays = payload.arrays
    remembered = arrays.pop(_RECURRENT, no_state())
    if payload.metadata != _METADATA or arrays.keys() != _NAMES or not arrays["actions"].ndim:
        raise StateError(f"no episode of version {_METADATA['replay']}: {payload.metadata!r:.80}")
    numbers, returns = arrays["numbers"], arrays["returns"]
    well_formed = numbers.dtype == np.int64 and returns.dtype == np.float64
    if not (well_formed and numbers.shape == returns.shape == (2,) and np.isfinite(returns).all()):
        raise StateError("no episode to repeat: it does not say how far it is")
    seed, checksum = numbers.tolist()
    if seed < 0:
        raise StateError(f"no episode to repeat: its seed is {seed}")
    episode_return, discounted_return = returns.tolist()
    actions = [*arrays["actions"].copy()]
    return Replay(seed, checksum, actions, episode_return, discounted_return, remembered)
