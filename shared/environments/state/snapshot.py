"""An episode saved from one environment, to be resumed by another environment of its kind.

The next step reads more than a simulator's state. MuJoCo's rewards and observations also read
positions and forces derived during the last step, which its state does not contain. So a snapshot
holds the state *before* the last step, and the action of this step. The resuming environment
repeats the step, which restores all derived values. If the step ended the episode, the snapshot
holds the state after it, and the resuming environment resets.

    arrays = save_state(env)
    *_, terminated, truncated, _ = env.step(action)
    ended = terminated or truncated
    left = Snapshot(save_state(env), None) if ended else Snapshot(arrays, action)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from shared.environments.state.keeper import Arrays, NotNowError, StateError
from shared.environments.state.saving import load_state, save_state
from shared.environments.told_errors import error_text
from shared.trajectory import codec
from shared.trajectory.snapshots import MAX_SNAPSHOT_BYTES

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions

_MAX_RAW_BYTES = 4 * 2**20
"""Most bytes of a snapshot, decompressed. The largest built-in ones are Atari's, with 28 KB."""
_METADATA = {"snapshot": "2"}
"""Kind and version of the format."""
_ACTION = "action"
_SO_FAR = "so_far"
_RECURRENT = "recurrent_state"


def no_state() -> NDArray[Any]:
    """Return the empty recurrent state of a policy without one."""
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The point at which an episode was saved."""

    arrays: Arrays
    """The state before the last step; after it, if it ended the episode."""
    action: object | None
    """The last step's action, as the environment took it; None if the step ended the episode."""
    episode_return: float = 0.0
    """Undiscounted return of the episode so far, including the last step."""
    length: int = 0
    """Steps of the episode so far."""
    discounted_return: float = 0.0
    """Sum of the rewards so far, each discounted once per step that followed."""
    recurrent_state: NDArray[Any] = field(default_factory=no_state)
    """A recurrent policy's state at this point # [S] float32."""


def snapshot_bytes(env: Env) -> int:
    """Test whether the state of an environment can be saved; it must have been reset.

    Returns:
        The size of a snapshot; 0 if the state cannot be saved at this moment.

    Raises:
        StateError: The state can never be saved; the message names the layer and the reason.
    """
    try:
        return len(encode(Snapshot(save_state(env), env.action_space.sample())))
    except NotNowError:
        return 0
    except StateError:
        raise
    except Exception as error:  # a user's get_state may raise anything
        raise StateError(f"get_state failed: {error_text(error)}") from error


def resume(env: Env, snapshot: Snapshot) -> Any:  # noqa: ANN401 - whatever the environment gives
    """Resume a saved episode, or begin the next one if it had ended.

    Args:
        env: Environment of the same kind, in any state, reset or not.
        snapshot: The saved episode.

    Returns:
        The observation that the next action answers.

    Raises:
        StateError: The snapshot does not fit the environment, which must be reset before any
            other use.
    """
    load_state(env, snapshot.arrays)
    if snapshot.action is None:
        return env.reset()[0]
    observation, _, terminated, truncated, _ = env.step(snapshot.action)
    # The repeated reward may differ, because it may read values derived before the step.
    if terminated or truncated:
        raise StateError("the episode ends where it was left, but did not when it was left")
    return observation


def encode(snapshot: Snapshot) -> bytes:
    """Return a snapshot as bytes; equal snapshots give equal bytes.

    Raises:
        StateError: It is too large, or an array is of an unsupported type.
    """
    arrays = dict(snapshot.arrays)
    so_far = (snapshot.episode_return, snapshot.length, snapshot.discounted_return)
    arrays[_SO_FAR] = np.array(so_far, np.float64)
    if snapshot.recurrent_state.size:
        arrays[_RECURRENT] = snapshot.recurrent_state
    if snapshot.action is not None:
        action = np.asarray(snapshot.action)
        # int64, as actors send actions: a space may sample a narrower type.
        arrays[_ACTION] = action.astype(np.int64) if action.dtype.kind in "iu" else action
    num_bytes = sum(array.nbytes for array in arrays.values())
    if num_bytes > _MAX_RAW_BYTES // 2:
        raise StateError(f"it takes {num_bytes} bytes, at most {_MAX_RAW_BYTES // 2} are kept")
    return packed(arrays, _METADATA, what="it takes")


def packed(arrays: Mapping[str, codec.Array], metadata: Mapping[str, str], *, what: str) -> bytes:
    """Return a saved episode's arrays as bytes.

    Raises:
        StateError: They are too large, as the message says of `what`, or of an unsupported type.
    """
    try:
        data = codec.encode(arrays, metadata)
    except codec.CodecError as error:
        raise StateError(str(error)) from error
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise StateError(
            f"{what} {len(data)} bytes, compressed; at most {MAX_SNAPSHOT_BYTES} are kept"
        )
    return data


def decode(data: bytes) -> Snapshot:
    """Return the snapshot that `encode` took.

    Raises:
        StateError: The bytes are damaged, too large, or not a snapshot of this version.
    """
    try:
        payload = codec.decode(data, max_bytes=_MAX_RAW_BYTES)
    except codec.CodecError as error:
        raise StateError(f"no snapshot: {error}") from error
    if payload.metadata != _METADATA:
        raise StateError(
            f"no snapshot of version {_METADATA['snapshot']}: {payload.metadata!r:.80}"
        )
    so_far = payload.arrays.pop(_SO_FAR, np.zeros(0))
    if so_far.shape != (3,) or not np.isfinite(so_far).all():
        raise StateError("no snapshot: it does not say how far its episode is")
    remembered = payload.arrays.pop(_RECURRENT, no_state())
    action: NDArray[Any] | None = payload.arrays.pop(_ACTION, None)
    if action is not None:
        action = action.copy()[()]  # a scalar stays a scalar, as policies return it
    numbers = float(so_far[0]), int(so_far[1]), float(so_far[2])
    return Snapshot(payload.arrays, action, *numbers, remembered)
