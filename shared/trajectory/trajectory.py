"""What one actor brings back: a trajectory to learn from, or the outcome of one episode.

Legend: `T` steps, `B` environments side by side, `F` truncated episodes, `E` finished episodes.

Step t takes `action[t]` at `observation[t]`. Where an episode ends inside the fragment, the
environment is reset and `observation[t + 1]` is the first observation of the next episode; where it
ends at the very last step, `observation[T]` is the final observation and no reset is wasted.
A step that is both terminated and truncated counts as terminal: nothing is bootstrapped there.

Invariant: what `decode_trajectory` returns is complete, finite and of the shapes the environment
dictates, and carries the identity of the round it was sampled for.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)
from shared.contracts.message import JOB_ID_FORM
from shared.trajectory import codec, frames
from shared.trajectory.snapshots import joined, parted

_TRAJECTORY_FORMAT = "nitro-trajectory/4"
_EPISODE_FORMAT = "nitro-episode/1"
_MAX_EPISODE_BYTES = 2**16
_JOB_ID = re.compile(JOB_ID_FORM)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_NUMBERS = ("round", "actor_index", "policy_version", "dropped_episodes")
_FINITE = ("observation", "final_observation", "action", "reward", "log_prob", "episode_returns")
_ARRAYS = (*_FINITE, "terminated", "truncated", "episode_lengths")
_SNAPSHOTS = ("snapshot", "snapshot_size")
_EARLIER = "earlier_return"
_ANEW = ("begun_anew", "lost_replays")


class TrajectoryError(ValueError):
    """Bytes that hold no valid trajectory or episode; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Result:
    """What a trajectory and an episode have in common: where they belong."""

    job_id: str
    round: int
    actor_index: int
    policy_version: int
    """Version of the weights that every action was chosen by."""
    dropped_episodes: int = 0
    """Episodes that were left out because something in them was not finite."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory(_Result):
    """`T` steps of `B` environments under one policy version."""

    observation: NDArray[np.float32] | NDArray[np.uint8]  # [T+1, B, *obs]
    """What the policy saw; the last row is there to bootstrap from."""
    final_observation: NDArray[np.float32] | NDArray[np.uint8]  # [F, *obs]
    """Last observation of each episode cut by a time limit, one row per (t, b) that is truncated
    and not terminated, in (t, b) order."""
    action: NDArray[np.float32] | NDArray[np.int64]  # [T, B, *act]
    """As sampled: float32 before rescaling and clipping, or int64 numbered from 0."""
    reward: NDArray[np.float32]  # [T, B]
    terminated: NDArray[np.bool_]  # [T, B]
    truncated: NDArray[np.bool_]  # [T, B]
    log_prob: NDArray[np.float32]  # [T, B]
    """Log-probability (density) of `action` under the behaviour policy."""
    episode_returns: NDArray[np.float32]  # [E]
    """Undiscounted returns of the episodes that ended here, in the order they ended; of whole games
    where episodes are lives."""
    episode_lengths: NDArray[np.int32]  # [E]
    begun_anew: int = 0
    """Episodes that were to go on, and began anew: where they were left could not be read."""
    lost_replays: int = 0
    """Those of them whose repeated actions gave another episode."""
    snapshots: tuple[bytes, ...] = ()
    """Where each environment's episode was left, for whoever goes on with it; none where every
    fragment begins with a reset. Only `shared.environments.state` reads them."""
    earlier_returns: tuple[float, ...] = ()
    """Discounted return of each environment's episode before the first step here: of what others
    did, and 0 where it began here; none where every fragment begins with a reset."""

    @property
    def num_steps(self) -> int:
        """Environment steps over all environments, T * B."""
        return int(self.reward.size)

    @property
    def num_envs(self) -> int:
        """Environments side by side, B."""
        return int(self.reward.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(_Result):
    """Outcome of one evaluation episode under the deterministic policy."""

    episode_return: float
    """Undiscounted."""
    length: int


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Return the trajectory as bytes for the cache; equal trajectories give equal bytes."""
    arrays = frames.packed({name: getattr(trajectory, name) for name in _ARRAYS})
    arrays.update(zip(_SNAPSHOTS, joined(trajectory.snapshots), strict=True))
    arrays[_EARLIER] = np.array(trajectory.earlier_returns, np.float64)
    numbers = {name: str(getattr(trajectory, name)) for name in _ANEW}
    return _encoded(arrays, trajectory, _TRAJECTORY_FORMAT, **numbers)


def decode_trajectory(
    data: bytes, *, environment: EnvironmentSpec, max_bytes: int = codec.DEFAULT_MAX_BYTES
) -> Trajectory:
    """Return the trajectory in untrusted bytes; its arrays are read-only.

    Args:
        data: What an actor stored.
        environment: What observations and actions must look like.
        max_bytes: Most bytes the arrays may take.

    Raises:
        TrajectoryError: The bytes are damaged, or a field is missing, of the wrong type or shape,
            out of range or not finite.
    """
    payload = _payload(data, _TRAJECTORY_FORMAT, max_bytes)
    arrays = dict(payload.arrays)
    snapshots, earlier_returns = _snapshots(arrays), _earlier_returns(arrays)
    try:
        arrays = frames.unpacked(arrays, environment.observation.shape, max_bytes=max_bytes)
    except ValueError as error:
        raise TrajectoryError(str(error)) from error
    _check_types(arrays, environment)
    trajectory = Trajectory(
        **_identity(payload.metadata),
        begun_anew=_number(payload.metadata, "begun_anew"),
        lost_replays=_number(payload.metadata, "lost_replays"),
        snapshots=snapshots,
        earlier_returns=earlier_returns,
        **arrays,  # type: ignore[arg-type] # names and dtypes have just been checked
    )
    _check_shapes(trajectory, environment)
    _check_values(trajectory, environment)
    return trajectory


def encode_episode(episode: Episode) -> bytes:
    """Return the episode as bytes for the cache."""
    arrays: dict[str, codec.Array] = {
        "episode_return": np.array(episode.episode_return, np.float64),
        "length": np.array(episode.length, np.int64),
    }
    return _encoded(arrays, episode, _EPISODE_FORMAT)


def decode_episode(data: bytes) -> Episode:
    """Return the episode in untrusted bytes.

    Raises:
        TrajectoryError: The bytes are damaged, or a field is missing or not a finite number.
    """
    payload = _payload(data, _EPISODE_FORMAT, _MAX_EPISODE_BYTES)
    arrays = payload.arrays
    _expect_dtypes(arrays, {"episode_return": np.dtype(np.float64), "length": np.dtype(np.int64)})
    for name, array in arrays.items():
        _expect_shape(name, array, ())
    episode_return, length = float(arrays["episode_return"].item()), int(arrays["length"].item())
    if not math.isfinite(episode_return):
        raise TrajectoryError(f"episode_return is {episode_return}, expected a finite number")
    if length < 1:
        raise TrajectoryError(f"length is {length}, expected at least 1")
    return Episode(**_identity(payload.metadata), episode_return=episode_return, length=length)


def _encoded(
    arrays: Mapping[str, codec.Array], result: _Result, result_format: str, **more: str
) -> bytes:
    numbers = {name: str(getattr(result, name)) for name in _NUMBERS}
    metadata = {"format": result_format, "job_id": result.job_id, **numbers, **more}
    return codec.encode(arrays, metadata)


def _snapshots(arrays: dict[str, codec.Array]) -> tuple[bytes, ...]:
    """Take the snapshots out of a trajectory's arrays."""
    try:
        return parted(*(arrays.pop(name) for name in _SNAPSHOTS))
    except KeyError as missing:
        raise TrajectoryError(f"holds no array {missing}") from None
    except ValueError as error:
        raise TrajectoryError(str(error)) from None


def _earlier_returns(arrays: dict[str, codec.Array]) -> tuple[float, ...]:
    """Take the discounted returns of before out of a trajectory's arrays."""
    found = arrays.pop(_EARLIER, None)
    if found is None:
        raise TrajectoryError(f"holds no array {_EARLIER!r}")
    if found.dtype != np.float64 or found.ndim != 1 or not np.isfinite(found).all():
        raise TrajectoryError(f"{_EARLIER} holds something else than finite numbers")
    return tuple(found.tolist())


def _payload(data: bytes, expected_format: str, max_bytes: int) -> codec.Payload:
    try:
        payload = codec.decode(data, max_bytes=max_bytes)
    except codec.CodecError as error:
        raise TrajectoryError(f"{expected_format}: {error}") from error
    if payload.metadata.get("format") != expected_format:
        found = payload.metadata.get("format")
        raise TrajectoryError(f"format is {found!r:.80}, expected {expected_format!r}")
    return payload


def _identity(metadata: Mapping[str, str]) -> dict[str, Any]:
    job_id = _field(metadata, "job_id", _JOB_ID, "a job's id")
    return {"job_id": job_id, **{name: _number(metadata, name) for name in _NUMBERS}}


def _number(metadata: Mapping[str, str], name: str) -> int:
    return int(_field(metadata, name, _NUMBER, "a whole number from 0"))


def _field(metadata: Mapping[str, str], field: str, form: re.Pattern[str], expected: str) -> str:
    text = metadata.get(field, "")
    if not form.fullmatch(text):
        raise TrajectoryError(f"{field} is {text!r:.80}, expected {expected}")
    return text


def _check_types(arrays: Mapping[str, codec.Array], environment: EnvironmentSpec) -> None:
    expected = dict.fromkeys(_ARRAYS, np.dtype(np.float32)) | {
        "observation": np.dtype(environment.observation.dtype),
        "final_observation": np.dtype(environment.observation.dtype),
        "terminated": np.dtype(np.bool_),
        "truncated": np.dtype(np.bool_),
        "episode_lengths": np.dtype(np.int32),
    }
    if not isinstance(environment.action, ContinuousActionSpec):
        expected["action"] = np.dtype(np.int64)
    _expect_dtypes(arrays, expected)


def _check_shapes(trajectory: Trajectory, environment: EnvironmentSpec) -> None:
    steps = trajectory.reward.shape  # [T, B]
    if len(steps) != 2 or 0 in steps:
        raise TrajectoryError(f"reward has shape {steps}, expected (T, B) with T >= 1 and B >= 1")
    observation, action = environment.observation.shape, _action_shape(environment.action)
    _expect_shape("observation", trajectory.observation, (steps[0] + 1, steps[1], *observation))
    _expect_shape("action", trajectory.action, (*steps, *action))
    _expect_shape("terminated", trajectory.terminated, steps)
    _expect_shape("truncated", trajectory.truncated, steps)
    _expect_shape("log_prob", trajectory.log_prob, steps)
    if len(trajectory.snapshots) not in (0, steps[1]):
        found = len(trajectory.snapshots)
        raise TrajectoryError(f"holds {found} snapshots, expected {steps[1]} or none")
    if len(trajectory.earlier_returns) != len(trajectory.snapshots):
        found = len(trajectory.earlier_returns)
        raise TrajectoryError(f"{_EARLIER} has {found} numbers, as many as snapshots are expected")
    num_cut = int(np.count_nonzero(trajectory.truncated & ~trajectory.terminated))
    num_ended = int(np.count_nonzero(trajectory.truncated | trajectory.terminated))
    _expect_shape("final_observation", trajectory.final_observation, (num_cut, *observation))
    num_reported = trajectory.episode_returns.size
    if environment.episodes_are_lives:
        # A game is reported once, with its last life: maybe where an episode that was left begins.
        num_ended = min(num_reported, num_ended + len(trajectory.snapshots))
    _expect_shape("episode_returns", trajectory.episode_returns, (num_ended,))
    _expect_shape("episode_lengths", trajectory.episode_lengths, (num_ended,))


def _check_values(trajectory: Trajectory, environment: EnvironmentSpec) -> None:
    for name in _FINITE:
        finite = np.isfinite(getattr(trajectory, name))
        if not finite.all():
            where = np.argwhere(~finite)[0].tolist()
            raise TrajectoryError(f"{name} is not finite at {where}")
    if (trajectory.episode_lengths < 1).any():
        raise TrajectoryError("episode_lengths holds a length below 1")
    num_choices = _num_choices(environment.action)
    if num_choices is None:
        return
    if (trajectory.action < 0).any() or (trajectory.action >= num_choices).any():
        raise TrajectoryError(f"action holds a number outside 0..{num_choices - 1}")


def _action_shape(action: ActionSpec) -> tuple[int, ...]:
    if isinstance(action, ContinuousActionSpec):
        return (len(action.low),)
    return () if isinstance(action, DiscreteActionSpec) else (len(action.num_choices),)


def _num_choices(action: ActionSpec) -> NDArray[np.int64] | None:
    """Return how many values each number of an action may take, of the shape of one action."""
    if isinstance(action, ContinuousActionSpec):
        return None
    if isinstance(action, DiscreteActionSpec):
        return np.array(action.n, np.int64)
    return np.array(action.num_choices, np.int64)


def _expect_dtypes(
    arrays: Mapping[str, codec.Array], expected: Mapping[str, np.dtype[np.generic]]
) -> None:
    if arrays.keys() != expected.keys():
        raise TrajectoryError(f"holds arrays {sorted(arrays)!r:.300}, expected {sorted(expected)}")
    for name, dtype in expected.items():
        if arrays[name].dtype != dtype:
            raise TrajectoryError(f"{name} has dtype {arrays[name].dtype}, expected {dtype}")


def _expect_shape(name: str, array: codec.Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise TrajectoryError(f"{name} has shape {array.shape}, expected {shape}")
