"""An actor's result: a trajectory to learn from, or the outcome of one episode.

Legend: `T` steps, `B` environments side by side, `F` truncated episodes, `E` finished episodes.

Step t takes `action[t]` at `observation[t]`. If an episode ends inside the fragment, the
environment is reset, and `observation[t + 1]` is the first observation of the next episode. If it
ends at the last step, `observation[T]` is the final observation, and no reset is wasted.
A step that is both terminated and truncated counts as terminal: nothing is bootstrapped there.

Invariant: a trajectory from `decode_trajectory` is complete, finite and of the environment's
shapes, and carries the identity of its round.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)
from shared.contracts.message import JOB_ID_FORM
from shared.policy.recurrent import MAX_STATE
from shared.trajectory import codec, frames
from shared.trajectory.columns import (
    Array,
    Column,
    ColumnsError,
    Experience,
    Schema,
    checked,
)
from shared.trajectory.snapshots import joined, parted

_TRAJECTORY_FORMAT = "nitro-trajectory/4"
_EPISODE_FORMAT = "nitro-episode/1"
_MAX_EPISODE_BYTES = 2**16
_JOB_ID = re.compile(JOB_ID_FORM)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_NUMBERS = ("round", "actor_index", "policy_version", "dropped_episodes")
_SNAPSHOTS = ("snapshot", "snapshot_size")
_EARLIER = "earlier_return"
_ANEW = ("begun_anew", "lost_replays")
_EPISODE: Schema = {
    "episode_return": Column(np.dtype(np.float64)),
    "length": Column(np.dtype(np.int64)),
}


class TrajectoryError(ValueError):
    """Bytes without a valid trajectory or episode; the message names the field."""


class Trajectory(Experience):
    """`T` steps of `B` environments under one policy version, and the round they belong to.

    Columns, see `experience_schema`:
        observation: The policy's input; the last row is for bootstrapping.
        final_observation: Last observation of each episode cut by a time limit, one row per (t, b)
            that is truncated and not terminated, in (t, b) order.
        action: As sampled: float32 before rescaling and clipping, or int64 numbered from 0.
        reward: The environment's own.
        log_prob: Log-probability (density) of `action` under the behaviour policy.
        episode_returns: Undiscounted returns of the episodes that ended here, in order of their
            ends; those of whole games if episodes are lives.
        terminated, truncated, episode_lengths: As their names say.
        recurrent_state: A recurrent policy's state before the first step of each environment; other
            policies have no such column.

    Attributes:
        policy_version: Version of the weights that chose every action.
        dropped_episodes: Episodes left out because a number was not finite.
        begun_anew: Episodes that started over because their saved state could not be read.
        lost_replays: Of these, episodes whose repeated actions gave another episode.
        snapshots: The saved episode of each environment, for a later actor to resume; empty if
            every fragment begins with a reset. Only `shared.environments.state` reads them.
        earlier_returns: Discounted return of each environment's episode before the first step here,
            from earlier actors; 0 if the episode began here; empty without snapshots.
    """

    __slots__ = ("job_id", *_NUMBERS, *_ANEW, "snapshots", "earlier_returns")

    def __init__(
        self,
        *,
        job_id: str,
        round: int,
        actor_index: int,
        policy_version: int,
        dropped_episodes: int = 0,
        begun_anew: int = 0,
        lost_replays: int = 0,
        snapshots: tuple[bytes, ...] = (),
        earlier_returns: tuple[float, ...] = (),
        **arrays: Array,
    ) -> None:
        super().__init__(**arrays)
        self.job_id = job_id
        self.round = round
        self.actor_index = actor_index
        self.policy_version = policy_version
        self.dropped_episodes = dropped_episodes
        self.begun_anew = begun_anew
        self.lost_replays = lost_replays
        self.snapshots = snapshots
        self.earlier_returns = earlier_returns

    def replaced(self, **changes: Any) -> Self:
        """Return this trajectory with other columns or attributes."""
        own = {name: getattr(self, name) for name in Trajectory.__slots__}
        return type(self)(**(own | self.arrays | changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Outcome of one evaluation episode under the deterministic policy."""

    job_id: str
    round: int
    actor_index: int
    policy_version: int
    episode_return: float
    """Undiscounted."""
    length: int
    dropped_episodes: int = 0


def experience_schema(environment: EnvironmentSpec, *, state_size: int = 0) -> Schema:
    """Return the columns of an environment's experience, with recurrent states of `state_size`."""
    observation = Column(
        np.dtype(environment.observation.dtype), item=tuple(environment.observation.shape)
    )
    choices = _num_choices(environment.action)
    action = Column(np.dtype(np.int64), item=() if choices is None else choices.shape)
    if isinstance(environment.action, ContinuousActionSpec):
        action = Column(item=(len(environment.action.low),))
    recurrent = {"recurrent_state": Column(item=(state_size,))} if state_size else {}
    return {
        **recurrent,
        "observation": observation,
        "final_observation": observation,
        "action": action,
        "reward": Column(),
        "log_prob": Column(),
        "episode_returns": Column(),
        "terminated": Column(np.dtype(np.bool_)),
        "truncated": Column(np.dtype(np.bool_)),
        "episode_lengths": Column(np.dtype(np.int32)),
    }


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Return the trajectory as bytes for the cache; equal trajectories give equal bytes."""
    arrays = frames.packed(trajectory.arrays)
    arrays.update(zip(_SNAPSHOTS, joined(trajectory.snapshots), strict=True))
    arrays[_EARLIER] = np.array(trajectory.earlier_returns, np.float64)
    numbers = {name: str(getattr(trajectory, name)) for name in _ANEW}
    return encoded(arrays, trajectory, _TRAJECTORY_FORMAT, **numbers)


def decode_trajectory(
    data: bytes,
    *,
    environment: EnvironmentSpec,
    state_size: int = 0,
    max_bytes: int = codec.DEFAULT_MAX_BYTES,
) -> Trajectory:
    """Return the trajectory in untrusted bytes; its arrays are read-only.

    Args:
        data: The actor's stored result.
        environment: Description of the expected observations and actions.
        state_size: Size of a recurrent state; 0 without one.
        max_bytes: Most bytes for the arrays.

    Raises:
        TrajectoryError: The bytes are damaged, or a field is missing, of the wrong type or shape,
            out of range or not finite.
    """
    payload = payload_of(data, _TRAJECTORY_FORMAT, max_bytes)
    arrays = dict(payload.arrays)
    snapshots, earlier_returns = _snapshots(arrays), _earlier_returns(arrays)
    try:
        arrays = frames.unpacked(arrays, environment.observation.shape, max_bytes=max_bytes)
        checked(arrays, experience_schema(environment, state_size=state_size), finite=True)
    except ValueError as error:
        raise TrajectoryError(str(error)) from error
    trajectory = Trajectory(
        **identity_of(payload.metadata),
        begun_anew=_number(payload.metadata, "begun_anew"),
        lost_replays=_number(payload.metadata, "lost_replays"),
        snapshots=snapshots,
        earlier_returns=earlier_returns,
        **arrays,  # type: ignore[arg-type] # none has an attribute's name: that has been checked
    )
    _check_counts(trajectory, environment)
    _check_values(trajectory, environment)
    return trajectory


def encode_episode(episode: Episode) -> bytes:
    """Return the episode as bytes for the cache."""
    arrays: dict[str, codec.Array] = {
        "episode_return": np.array(episode.episode_return, np.float64),
        "length": np.array(episode.length, np.int64),
    }
    return encoded(arrays, episode, _EPISODE_FORMAT)


def decode_episode(data: bytes) -> Episode:
    """Return the episode in untrusted bytes.

    Raises:
        TrajectoryError: The bytes are damaged, or a field is missing or not a finite number.
    """
    payload = payload_of(data, _EPISODE_FORMAT, _MAX_EPISODE_BYTES)
    arrays = payload.arrays
    try:
        checked(arrays, _EPISODE, axes=lambda _name: ())
    except ColumnsError as error:
        raise TrajectoryError(str(error)) from error
    episode_return, length = float(arrays["episode_return"].item()), int(arrays["length"].item())
    if not math.isfinite(episode_return):
        raise TrajectoryError(f"episode_return is {episode_return}, expected a finite number")
    if length < 1:
        raise TrajectoryError(f"length is {length}, expected at least 1")
    return Episode(**identity_of(payload.metadata), episode_return=episode_return, length=length)


def encoded(
    arrays: Mapping[str, codec.Array], result: Trajectory | Episode, result_format: str, **more: str
) -> bytes:
    """Return a result's arrays as bytes, with its identity and further metadata."""
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
    """Take the earlier discounted returns out of a trajectory's arrays."""
    found = arrays.pop(_EARLIER, None)
    if found is None:
        raise TrajectoryError(f"holds no array {_EARLIER!r}")
    if found.dtype != np.float64 or found.ndim != 1 or not np.isfinite(found).all():
        raise TrajectoryError(f"{_EARLIER} holds something else than finite numbers")
    return tuple(found.tolist())


def payload_of(data: bytes, expected_format: str, max_bytes: int) -> codec.Payload:
    """Return the arrays in untrusted bytes of an expected format; raise `TrajectoryError`."""
    try:
        payload = codec.decode(data, max_bytes=max_bytes)
    except codec.CodecError as error:
        raise TrajectoryError(f"{expected_format}: {error}") from error
    if payload.metadata.get("format") != expected_format:
        found = payload.metadata.get("format")
        raise TrajectoryError(f"format is {found!r:.80}, expected {expected_format!r}")
    return payload


def identity_of(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return a result's identity, by attribute; raise `TrajectoryError` if it is invalid."""
    job_id = _field(metadata, "job_id", _JOB_ID, "a job's id")
    return {"job_id": job_id, **{name: _number(metadata, name) for name in _NUMBERS}}


def _number(metadata: Mapping[str, str], name: str) -> int:
    return int(_field(metadata, name, _NUMBER, "a whole number from 0"))


def _field(metadata: Mapping[str, str], field: str, form: re.Pattern[str], expected: str) -> str:
    text = metadata.get(field, "")
    if not form.fullmatch(text):
        raise TrajectoryError(f"{field} is {text!r:.80}, expected {expected}")
    return text


def _check_counts(trajectory: Trajectory, environment: EnvironmentSpec) -> None:
    if not trajectory.num_steps:
        raise TrajectoryError(
            f"reward has shape {trajectory.reward.shape}, expected (T, B) with T >= 1 and B >= 1"
        )
    num_snapshots = len(trajectory.snapshots)
    if num_snapshots not in (0, trajectory.num_envs):
        expected = trajectory.num_envs
        raise TrajectoryError(f"holds {num_snapshots} snapshots, expected {expected} or none")
    if len(trajectory.earlier_returns) != num_snapshots:
        found = len(trajectory.earlier_returns)
        raise TrajectoryError(f"{_EARLIER} has {found} numbers, as many as snapshots are expected")
    num_cut = int(np.count_nonzero(trajectory.truncated & ~trajectory.terminated))
    num_ended = int(np.count_nonzero(trajectory.truncated | trajectory.terminated))
    if environment.episodes_are_lives:
        # A game is reported once, with its last life, perhaps at the start of a resumed episode.
        num_ended = min(trajectory.episode_returns.size, num_ended + num_snapshots)
    for name, expected in (
        ("final_observation", num_cut),
        ("episode_returns", num_ended),
        ("episode_lengths", num_ended),
    ):
        shape = trajectory.arrays[name].shape
        if shape[0] != expected:
            raise TrajectoryError(f"{name} has shape {shape}, expected {expected} rows")


def _check_values(trajectory: Trajectory, environment: EnvironmentSpec) -> None:
    if (trajectory.episode_lengths < 1).any():
        raise TrajectoryError("episode_lengths holds a length below 1")
    largest = np.abs(trajectory.arrays.get("recurrent_state", np.zeros(1))).max()
    if largest > MAX_STATE:
        raise TrajectoryError(
            f"recurrent_state holds {largest:g}, no cell has more than {MAX_STATE:g}"
        )
    num_choices = _num_choices(environment.action)
    if num_choices is None:
        return
    if (trajectory.action < 0).any() or (trajectory.action >= num_choices).any():
        raise TrajectoryError(f"action holds a number outside 0..{num_choices - 1}")


def _num_choices(action: ActionSpec) -> NDArray[np.int64] | None:
    """Return how many values each number of an action may take, of the shape of one action."""
    if isinstance(action, ContinuousActionSpec):
        return None
    if isinstance(action, DiscreteActionSpec):
        return np.array(action.n, np.int64)
    return np.array(action.num_choices, np.int64)
