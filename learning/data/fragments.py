"""Whole fragments side by side: what a learner batch is made of, and how it is kept and saved.

Off-policy algorithms mix trajectories of several rounds and policy versions, so a batch is no round
any more: it is columns of equally long fragments, each with the version it was made by.

Legend: T steps; B environments of all its trajectories; F truncated episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.trajectory import codec, frames
from shared.trajectory.trajectory import Trajectory

MAX_BYTES = 8 << 30
"""Most bytes that one encoding may stand for."""

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fragments:
    """T steps of B environments; as in a `Trajectory`, but for `policy_version`."""

    observation: Array  # [T + 1, B, *obs]
    final_observation: Array  # [F, *obs], in (t, b) order of the steps truncated, not terminated
    action: Array  # [T, B, *act]
    reward: NDArray[np.float32]  # [T, B]
    terminated: NDArray[np.bool_]  # [T, B]
    truncated: NDArray[np.bool_]  # [T, B]
    log_prob: NDArray[np.float32]  # [T, B], under the policy that acted
    policy_version: NDArray[np.int64]  # [B]

    @property
    def num_steps(self) -> int:
        """Environment steps, T * B."""
        return int(self.reward.size)

    @property
    def num_envs(self) -> int:
        """Columns, B."""
        return int(self.reward.shape[1])

    @property
    def final_rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Where the final observations belong: their t and b, # [F] each."""
        t, b = np.nonzero(self.truncated & ~self.terminated)
        return t, b

    def columns(self, start: int, stop: int) -> Self:
        """Return environments `start` to `stop` of them."""
        _, b = self.final_rows
        inside = (start <= b) & (b < stop)
        return type(self)(
            final_observation=self.final_observation[inside],
            policy_version=self.policy_version[start:stop],
            **{name: getattr(self, name)[:, start:stop] for name in _STEPWISE},
        )

    def arrays(self) -> dict[str, Array]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_STEPWISE = ("observation", "action", "reward", "terminated", "truncated", "log_prob")


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
    lengths = {trajectory.reward.shape[0] for trajectory in ordered}
    if len(lengths) != 1:
        raise ValueError(f"all trajectories of a round must have one length, got {sorted(lengths)}")
    return ordered


def fragments_of(trajectory: Trajectory) -> Fragments:
    """Return one trajectory as fragments; the arrays are its own.

    Raises:
        ValueError: It has not one final observation for each step that was truncated.
    """
    num_final = len(trajectory.final_observation)
    num_cut = int((trajectory.truncated & ~trajectory.terminated).sum())
    if num_final != num_cut:
        raise ValueError(
            f"actor {trajectory.actor_index}: {num_final} final observations for {num_cut} "
            "truncated steps"
        )
    return Fragments(
        final_observation=trajectory.final_observation,
        policy_version=np.full(trajectory.num_envs, trajectory.policy_version, np.int64),
        **{name: getattr(trajectory, name) for name in _STEPWISE},
    )


def final_rows(parts: Sequence[Fragments]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the parts' final observations belong, part by part: their t and b, # [F] each.

    b counts over the environments of all parts.
    """
    rows, first_env = [], 0
    for part in parts:
        t, b = part.final_rows
        rows.append((t, b + first_env))
        first_env += part.num_envs
    t, b = np.concatenate(rows, axis=1)
    return t, b


def side_by_side(parts: Sequence[Fragments]) -> Fragments:
    """Return all columns of some fragments, in their order.

    Raises:
        ValueError: There are none, or they differ in length.
    """
    lengths = {part.reward.shape[0] for part in parts}
    if len(lengths) != 1:
        raise ValueError(f"fragments of a batch must have one length, got {sorted(lengths)}")
    t, b = final_rows(parts)
    final = np.concatenate([part.final_observation for part in parts])
    return Fragments(
        final_observation=final[np.lexsort((b, t))],
        policy_version=np.concatenate([part.policy_version for part in parts]),
        **{
            name: np.concatenate([getattr(part, name) for part in parts], axis=1)
            for name in _STEPWISE
        },
    )


def encoded(fragments: Fragments) -> bytes:
    """Return fragments compressed, each frame of stacked images once."""
    shape = fragments.observation.shape[2:]
    return codec.encode(
        frames.packed(fragments.arrays()), {"num_stacked": str(shape[0] if shape else 1)}
    )


def decoded(data: bytes) -> Fragments:
    """Return what `encoded` was given, in memory of its own.

    Raises:
        ValueError: The bytes are no such encoding.
    """
    payload = codec.decode(data, max_bytes=MAX_BYTES)
    frame = payload.arrays.get("frame", np.zeros(0))
    shape = (int(payload.metadata.get("num_stacked", "")), *frame.shape[1:])
    arrays = frames.unpacked(payload.arrays, shape, max_bytes=MAX_BYTES)
    return fragments_from({name: np.array(array, order="C") for name, array in arrays.items()})


def fragments_from(arrays: Mapping[str, Array]) -> Fragments:
    """Return the fragments whose `arrays` these are.

    Raises:
        ValueError: A field is missing or unknown, or shapes or types do not belong together.
    """
    expected = {field.name for field in fields(Fragments)}
    if arrays.keys() != expected:
        raise ValueError(f"fragments hold {sorted(arrays)}, expected {sorted(expected)}")
    result = Fragments(**arrays)  # type: ignore[arg-type] # the types are checked next
    for name, dtype in _DTYPES.items():
        if arrays[name].dtype != dtype:
            raise ValueError(f"fragments' {name} is {arrays[name].dtype}, expected {dtype}")
    if result.reward.ndim != 2:
        raise ValueError(f"fragments' reward has shape {result.reward.shape}, expected (T, B)")
    steps, envs = result.reward.shape
    shape = result.observation.shape[2:]

    def require(name: str, *expected: int) -> None:
        if arrays[name].shape != expected:
            raise ValueError(
                f"fragments' {name} has shape {arrays[name].shape}, expected {expected}"
            )

    require("observation", steps + 1, envs, *shape)
    require("action", steps, envs, *result.action.shape[2:])
    for name in ("terminated", "truncated", "log_prob"):
        require(name, steps, envs)
    require("policy_version", envs)
    require("final_observation", len(result.final_rows[0]), *shape)
    return result


_DTYPES = {
    "reward": np.dtype(np.float32),
    "terminated": np.dtype(np.bool_),
    "truncated": np.dtype(np.bool_),
    "log_prob": np.dtype(np.float32),
    "policy_version": np.dtype(np.int64),
}
