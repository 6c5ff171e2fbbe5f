"""Off-policy data: fragments side by side, and how they are saved.

Off-policy algorithms mix trajectories of several rounds and policy versions, so a batch is no
round: it consists of equally long fragments, each column with its policy version.

Legend: T steps; B environments of all its trajectories; F truncated episodes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from shared.trajectory import codec, frames
from shared.trajectory.columns import Array, Column, Experience, Schema, checked
from shared.trajectory.trajectory import Trajectory

MAX_BYTES = 8 << 30
"""Most bytes that one encoding may stand for."""

_FLAG, _OPEN = Column(np.dtype(np.bool_)), Column(None, None)
_KEPT: Schema = {
    "observation": _OPEN,
    "final_observation": _OPEN,
    "action": _OPEN,
    "reward": Column(),
    "terminated": _FLAG,
    "truncated": _FLAG,
    "log_prob": Column(),
    "policy_version": Column(np.dtype(np.int64)),
}
"""The columns of a trajectory for learning, and the version of each environment's column."""
_STATE: Schema = {"recurrent_state": _OPEN}
"""One more of recurrent policies."""


def in_actor_order(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return a round's trajectories in an order that does not depend on when they arrived.

    Raises:
        ValueError: There is no trajectory, an actor index occurs twice, or lengths differ.
    """
    if not trajectories:
        raise ValueError("an update needs at least one trajectory, got none")
    ordered = sorted(trajectories, key=lambda trajectory: trajectory.actor_index)
    indices = [trajectory.actor_index for trajectory in ordered]
    if len(set(indices)) != len(indices):
        raise ValueError(f"actor indices must be distinct, got {indices}")
    # Sums of whole episodes have no rewards, nor a common length.
    rewards = [each.arrays["reward"] for each in ordered if "reward" in each.arrays]
    lengths = {len(reward) for reward in rewards}
    if len(lengths) > 1:
        raise ValueError(f"all trajectories of a round must have one length, got {sorted(lengths)}")
    return ordered


def fragments_of(trajectory: Trajectory) -> Experience:
    """Return the kept part of a trajectory; the arrays are copies."""
    version = np.full(trajectory.num_envs, trajectory.policy_version, np.int64)
    given = trajectory.arrays | {"policy_version": version}
    return Experience(**{name: given[name] for name in _kept(given)})


def encoded(fragments: Experience) -> bytes:
    """Return fragments compressed, each frame of stacked images once."""
    shape = fragments.observation.shape[2:]
    return codec.encode(
        frames.packed(fragments.arrays), {"num_stacked": str(shape[0] if shape else 1)}
    )


def decoded(data: bytes) -> Experience:
    """Return the decoded fragments, in their own memory.

    Raises:
        ValueError: The bytes are not a valid encoding.
    """
    payload = codec.decode(data, max_bytes=MAX_BYTES)
    frame = payload.arrays.get("frame", np.zeros(0))
    shape = (int(payload.metadata.get("num_stacked", "")), *frame.shape[1:])
    arrays = frames.unpacked(payload.arrays, shape, max_bytes=MAX_BYTES)
    return fragments_from({name: np.array(array, order="C") for name, array in arrays.items()})


def fragments_from(arrays: Mapping[str, Array]) -> Experience:
    """Return the fragments whose arrays these are.

    Raises:
        ValueError: A field is missing or unknown, or shapes or types do not belong together.
    """
    kept = _kept(arrays)
    checked(arrays, kept)
    # In a trajectory's order, so that a second save has the same bytes.
    found = Experience(**{name: arrays[name] for name in kept})
    seen, last = found.observation.shape[2:], found.final_observation.shape[1:]
    if seen != last:
        raise ValueError(f"final_observation has shape (F, *{last}), expected (F, *{seen})")
    _ = found.final_rows  # as many as there should be
    return found


def _kept(arrays: Mapping[str, Array]) -> Schema:
    return {**_KEPT, **_STATE} if _STATE.keys() <= arrays.keys() else _KEPT
