"""What actors bring of a search, as bytes from outside."""

from typing import Any

import numpy as np
import pytest

from shared.trajectory.episode_sums import EpisodeSums, decode_sums, encode_sums
from shared.trajectory.trajectory import TrajectoryError
from tests.learning.trajectories import CONTINUOUS


def sums(**changes: Any) -> EpisodeSums:
    return EpisodeSums(
        job_id="job",
        round=2,
        actor_index=1,
        policy_version=2,
        **{
            "episode": np.array([1, 3]),
            "episode_returns": np.array([1.5, -2.0]),
            "episode_lengths": np.array([4, 9], np.int32),
            "observation_mean": np.zeros((2, 5)),
            "observation_m2": np.ones((2, 5)),
            **changes,
        },
    )


def decoded(data: bytes, *, moments: bool = True) -> EpisodeSums:
    return decode_sums(
        data, environment=CONTINUOUS, episodes=range(1, 5, 2), longest=9, moments=moments
    )


def test_they_come_back_as_they_were() -> None:
    sent = sums()
    got = decoded(encode_sums(sent))
    assert (got.job_id, got.round, got.actor_index, got.num_steps) == ("job", 2, 1, 13)
    for name, array in sent.arrays.items():
        assert (got.arrays[name] == array).all()
    empty = np.zeros((2, 0))
    without = encode_sums(sums(observation_mean=empty, observation_m2=empty))
    assert decoded(without, moments=False).observation_mean.shape == (2, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episode": np.array([1, 2])}, "episode is"),
        ({"episode_returns": np.array([1.0, np.nan])}, "episode_returns holds a number that no"),
        ({"episode_returns": np.array([1e200, -1e200])}, "episode_returns holds a number that no"),
        ({"episode_lengths": np.array([0, 9], np.int32)}, "episode_lengths holds a number that no"),
        ({"episode_lengths": np.array([4, 10], np.int32)}, "episode_lengths holds a number that"),
        ({"observation_mean": np.full((2, 5), 1e39)}, "observation_mean holds a number that no"),
        ({"observation_m2": np.full((2, 5), -1.0)}, "observation_m2 holds a number that no"),
        ({"observation_m2": np.full((2, 5), 1e80)}, "observation_m2 holds a number that no"),
        ({"observation_mean": np.zeros((2, 4))}, "observation_mean has shape"),
        ({"more": np.zeros(2)}, "holds arrays"),
    ],
)
def test_what_nobody_asked_for_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrajectoryError, match=message):
        decoded(encode_sums(sums(**changes)))
