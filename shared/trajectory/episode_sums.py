"""An actor's result of a search: a few sums of each whole episode, without steps.

Legend: `E` episodes; `F` numbers of an observation.
"""

import math
from collections.abc import Sequence

import numpy as np

from shared.cache.arrivals import MAX_REASON_CHARS
from shared.contracts.environment_spec import EnvironmentSpec
from shared.trajectory.codec import DEFAULT_MAX_BYTES
from shared.trajectory.columns import Array, Column, ColumnsError, Schema, checked
from shared.trajectory.trajectory import (
    Trajectory,
    TrajectoryError,
    encoded,
    identity_of,
    payload_of,
)

_FORMAT = "nitro-episode-sums/1"
_FAILED = b"nitro-part-failed/1\n"
GIVEN_UP = b"nitro-part-given-up/1\n"
"""The learner's own result for a part without which it has closed an iteration."""
_LARGEST_RETURN = 1e100
"""Limit for returns, so that their sums and squares are finite."""
_LARGEST_OBSERVED = float(np.finfo(np.float32).max)
_NUMBERS_F64 = np.dtype(np.float64)


class EpisodeSums(Trajectory):
    """A trajectory reduced to the sums of its episodes.

    Columns, all [E] or [E, F], over all steps of each episode:
        episode: Number in the iteration, see `SearchTask`. int64
        episode_returns: Undiscounted. float64
        episode_lengths: In steps. int32
        observation_mean: Mean of the observations before each action. float64, [E, F], or [E, 0]
            if not reported.
        observation_m2: Sum of their squared deviations from the mean, of the same type and shape.
    """

    __slots__ = ()

    @property
    def num_steps(self) -> int:
        """Environment steps of all episodes."""
        return int(self.episode_lengths.sum())

    @property
    def num_envs(self) -> int:
        """Always 1: an actor plays its episodes one after the other."""
        return 1


def _schema(num_observed: int) -> Schema:
    moment = Column(_NUMBERS_F64, item=(num_observed,))
    return {
        "episode": Column(np.dtype(np.int64)),
        "episode_returns": Column(_NUMBERS_F64),
        "episode_lengths": Column(np.dtype(np.int32)),
        "observation_mean": moment,
        "observation_m2": moment,
    }


def encode_sums(sums: EpisodeSums) -> bytes:
    """Return the sums as bytes for the cache; equal sums give equal bytes."""
    return encoded(sums.arrays, sums, _FORMAT)


def encode_failure(reason: str) -> bytes:
    """Return the result of a part whose environment failed."""
    return _FAILED + reason.encode("utf-8", "replace")


def failure_in(data: bytes) -> str | None:
    """Return why a part's environment failed, of untrusted bytes; None if they do not say so."""
    if not data.startswith(_FAILED):
        return None
    return data[len(_FAILED) :][:MAX_REASON_CHARS].decode("utf-8", "replace")


def decode_sums(
    data: bytes,
    *,
    environment: EnvironmentSpec,
    episodes: Sequence[int],
    longest: int,
    moments: bool,
) -> EpisodeSums:
    """Return the sums in untrusted bytes.

    Args:
        data: The actor's stored result.
        environment: The job's environment.
        episodes: Numbers of the actor's episodes.
        longest: Most steps of an episode.
        moments: Whether the moments of the observations are expected.

    Raises:
        TrajectoryError: The bytes are damaged, or a field is missing, of the wrong type or shape,
            or out of range.
    """
    payload = payload_of(data, _FORMAT, DEFAULT_MAX_BYTES)
    num_observed = math.prod(environment.observation.shape) if moments else 0
    arrays: dict[str, Array] = dict(payload.arrays)
    try:
        checked(arrays, _schema(num_observed), axes=lambda _name: ("E",))
    except ColumnsError as error:
        raise TrajectoryError(str(error)) from error
    if arrays["episode"].tolist() != list(episodes):
        raise TrajectoryError(
            f"episode is {arrays['episode'].tolist()!r:.80}, expected {list(episodes)!r:.80}"
        )
    bounds = {
        "episode_lengths": (1, longest),
        "episode_returns": (-_LARGEST_RETURN, _LARGEST_RETURN),
        "observation_mean": (-_LARGEST_OBSERVED, _LARGEST_OBSERVED),
        "observation_m2": (0.0, longest * _LARGEST_OBSERVED**2),
    }
    for name, (least, most) in bounds.items():
        # NaN fails this, too.
        if not ((least <= arrays[name]) & (arrays[name] <= most)).all():
            raise TrajectoryError(f"{name} holds a number that no episode can have")
    return EpisodeSums(**identity_of(payload.metadata), **arrays)  # type: ignore[arg-type] # checked
