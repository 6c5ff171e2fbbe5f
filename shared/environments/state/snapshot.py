"""An episode that is left by one environment, to be taken up by another one of its kind.

A simulator's state is not all that the next step reads: MuJoCo's rewards and observations also read
positions and forces that it derived during the last step, of which its own state knows nothing. So
what is kept is the state *before* the last step, and that step's action. Who takes the episode up
repeats the step, and everything derived comes out as it was. If the step ended the episode, what is
kept is the state after it, and who takes it up resets.

    arrays = save_state(env)
    *_, terminated, truncated, _ = env.step(action)
    ended = terminated or truncated
    left = Snapshot(save_state(env), None) if ended else Snapshot(arrays, action)
"""

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

Env = gymnasium.Env[Any, Any]  # observations and actions are whatever the spaces say

_MAX_RAW_BYTES = 4 * 2**20
"""Of one, decompressed. The largest of our own are Atari's, of 28 KB."""
_METADATA = {"snapshot": "2"}
"""Its kind, and the version of its format."""
_ACTION = "action"
_SO_FAR = "so_far"
_RECURRENT = "recurrent_state"


def no_state() -> NDArray[Any]:
    """Return the recurrent state of a policy that has none."""
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Where an episode was left."""

    arrays: Arrays
    """The state before the step that was the last one; after it, if it ended the episode."""
    action: object | None
    """That step's, as the environment took it; None if it ended the episode."""
    episode_return: float = 0.0
    """Undiscounted return of the episode so far, that step included."""
    length: int = 0
    """Its steps so far."""
    discounted_return: float = 0.0
    """Rewards of these steps, each discounted once for every step that followed."""
    recurrent_state: NDArray[Any] = field(default_factory=no_state)
    """A recurrent policy's state in the episode # [S] float32."""


def snapshot_bytes(env: Env) -> int:
    """Try whether the state of an environment, which has been reset, can be kept.

    Returns:
        The size of a snapshot; 0 if it cannot be kept at this moment.

    Raises:
        StateError: It can never be; names the layer that stands in the way, and says why.
    """
    try:
        return len(encode(Snapshot(save_state(env), env.action_space.sample())))
    except NotNowError:
        return 0
    except StateError:
        raise
    except Exception as error:  # a get_state of one's own may raise anything
        raise StateError(f"get_state failed: {error_text(error)}") from error


def resume(env: Env, snapshot: Snapshot) -> Any:  # noqa: ANN401 - whatever the environment gives
    """Take an episode up where it was left, or begin the next one where it had ended.

    Args:
        env: Of the same kind; whether it was reset, or what it was used for, does not matter.
        snapshot: Where.

    Returns:
        The observation that the next action answers.

    Raises:
        StateError: The snapshot does not fit the environment, which has to be reset before it is
            used otherwise.
    """
    load_state(env, snapshot.arrays)
    if snapshot.action is None:
        return env.reset()[0]
    observation, _, terminated, truncated, _ = env.step(snapshot.action)
    # Its reward may be another one than before, where it reads what was derived before the step.
    if terminated or truncated:
        raise StateError("the episode ends where it was left, but did not when it was left")
    return observation


def encode(snapshot: Snapshot) -> bytes:
    """Return a snapshot as bytes; equal ones give equal bytes.

    Raises:
        StateError: It is too large, or an array is of a type that has no place in it.
    """
    arrays = dict(snapshot.arrays)
    so_far = (snapshot.episode_return, snapshot.length, snapshot.discounted_return)
    arrays[_SO_FAR] = np.array(so_far, np.float64)
    if snapshot.recurrent_state.size:
        arrays[_RECURRENT] = snapshot.recurrent_state
    if snapshot.action is not None:
        action = np.asarray(snapshot.action)
        # As actors send them: the sample of a space may be of a shorter type.
        arrays[_ACTION] = action.astype(np.int64) if action.dtype.kind in "iu" else action
    num_bytes = sum(array.nbytes for array in arrays.values())
    if num_bytes > _MAX_RAW_BYTES // 2:
        raise StateError(f"it takes {num_bytes} bytes, at most {_MAX_RAW_BYTES // 2} are kept")
    try:
        data = codec.encode(arrays, _METADATA)
    except codec.CodecError as error:
        raise StateError(str(error)) from error
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise StateError(
            f"it takes {len(data)} bytes, compressed; at most {MAX_SNAPSHOT_BYTES} are kept"
        )
    return data


def decode(data: bytes) -> Snapshot:
    """Return what `encode` was given.

    Raises:
        StateError: The bytes are damaged, too large, or no snapshot of this version.
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
        action = action.copy()[()]  # a number where it is one, as policies give it
    numbers = float(so_far[0]), int(so_far[1]), float(so_far[2])
    return Snapshot(payload.arrays, action, *numbers, remembered)
