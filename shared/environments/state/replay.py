"""An episode that is left as its seed and actions, to be repeated by whoever takes it up.

Many simulators cannot save their state, but give the same episode for the same seed and actions.
So what is kept is the seed of the reset, the actions since, and a checksum of all observations.
Whoever takes the episode up repeats it. Equal checksums and returns prove that it stands where it
was left.

An environment may draw from Python's or NumPy's global generators instead of its own. They are
seeded at every reset, which is enough where a process steps one environment at a time. With more
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
from shared.environments.state.snapshot import no_state
from shared.trajectory import codec
from shared.trajectory.snapshots import MAX_SNAPSHOT_BYTES

Env = gymnasium.Env[Any, Any]  # observations and actions are whatever the spaces say

_MAX_RAW_BYTES = 4 * 2**20
_METADATA = {"replay": "1"}
"""Its kind, and the version of its format."""
_NAMES = {"actions", "numbers", "returns"}
_RECURRENT = "recurrent_state"


class ReplayError(StateError):
    """The same seed and actions gave another episode."""


@dataclass(slots=True, eq=False)
class Replay:
    """An episode so far."""

    seed: int
    """Of its reset."""
    checksum: int = 0
    """CRC-32 of all observations, the first one included."""
    actions: list[Any] = field(default_factory=list)
    """As the environment took them."""
    episode_return: float = 0.0
    """Undiscounted return where it was left."""
    discounted_return: float = 0.0
    """Rewards until then, each discounted once for every step that followed."""
    recurrent_state: NDArray[Any] = field(default_factory=no_state)
    """A recurrent policy's state in it # [S] float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an environment stands."""

    place: bytes
    """The episode as it was left there."""
    observation: NDArray[Any]
    """The one that its next action answers."""
    generators: tuple[Any, ...] = field(default_factory=lambda: (random.getstate(), _numpy_state()))
    """Python's and NumPy's global ones."""

    def restore_generators(self) -> None:
        """Set the global generators to what they were."""
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
    """Steps an environment and keeps what it takes to repeat the episode."""

    def __init__(self, env: Env, *, dtype: DTypeLike) -> None:
        """Take an environment, which is to be reset before it is stepped.

        Args:
            env: The environment.
            dtype: Of observations as the policy sees them.
        """
        self._env = env
        self._dtype = dtype
        self.episode = Replay(seed=0)
        self.num_repeated = 0
        """Steps repeated so far, of all episodes."""

    def reset(self, seed: int) -> Any:  # noqa: ANN401 - whatever the environment gives
        """Begin an episode; everything random about it follows from the seed."""
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
        """Go on with an episode; return the observation that its next action answers.

        Args:
            left: The episode as it was left.
            standing: Where the environment stands; if that is there, nothing is repeated.
            discount: Of the episode's discounted return.

        Raises:
            StateError: It cannot be read, or is another episode when it is repeated.
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
            left: The episode as it was left.
            discount: Of its discounted return.

        Raises:
            ReplayError: It is another episode this time; this one must be reset.
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
    """Return an episode of at most so many steps as bytes; equal ones give equal bytes.

    Raises:
        StateError: It is too long or too large, or its actions are of a type that is not kept.
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
    try:
        data = codec.encode(arrays, _METADATA)
    except codec.CodecError as error:
        raise StateError(str(error)) from error
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise StateError(
            f"its actions take {len(data)} bytes, compressed; at most {MAX_SNAPSHOT_BYTES} are kept"
        )
    return data


def decode(data: bytes) -> Replay:
    """Return what `encode` was given.

    Raises:
        StateError: The bytes are damaged, too large, or no episode of this version.
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
