"""Steps as a critic learns from them, and the ring that keeps the newest."""

import numpy as np
import pytest

from learning.data.transitions import Replay, RowColumns, transitions
from shared.trajectory.trajectory import Trajectory


def test_a_cut_episode_goes_on_with_its_true_last_observation_and_a_terminated_one_does_not() -> (
    None
):
    # Environment 0 terminates at step 1; environment 1 is cut at step 0, and at the very end.
    observation = np.arange(8, dtype=np.float32).reshape(4, 2, 1)
    terminated = np.array([[0, 0], [1, 0], [0, 0]], bool)
    truncated = np.array([[0, 1], [1, 0], [0, 1]], bool)
    found = transitions(
        Trajectory(
            job_id="job",
            round=0,
            actor_index=0,
            policy_version=0,
            observation=observation,
            final_observation=np.array([[50.0], [70.0]], np.float32),
            action=np.arange(6, dtype=np.float32).reshape(3, 2, 1) / np.float32(10),
            reward=np.arange(6, dtype=np.float32).reshape(3, 2),
            terminated=terminated,
            truncated=truncated,
            log_prob=np.zeros((3, 2), np.float32),
            episode_returns=np.zeros(3, np.float32),
            episode_lengths=np.ones(3, np.int32),
        )
    )
    # observation, the one after it, action, reward, whether it goes on
    expected = [
        [0, 2, 0.0, 0, 1],
        [2, 4, 0.2, 2, 0],
        [4, 6, 0.4, 4, 1],
        [1, 50, 0.1, 1, 1],
        [3, 5, 0.3, 3, 1],
        [5, 70, 0.5, 5, 1],
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    columns = RowColumns(1, 1)
    assert (columns.width, columns.reward, columns.goes_on) == (5, 3, 4)


def _numbered(start: int, end: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.repeat(np.arange(start, end, dtype=np.float32)[:, np.newaxis], 2, axis=1)


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (5, 7, 2), (30,), (1, 25, 4)])
def test_the_ring_keeps_the_newest_rows_in_order(sizes: tuple[int, ...]) -> None:
    replay, added = Replay(width=2, capacity=8), 0
    for size in sizes:
        replay.add(_numbered(added, added + size))
        added += size
    first = max(0, added - 8)
    assert (replay.added, replay.first) == (added, first)
    np.testing.assert_array_equal(replay.between(first, added), _numbered(first, added))
    choices = (np.arange(added - first) + 0.5) / (added - first)
    assert sorted(replay.drawn(choices)[:, 0]) == list(range(first, added))
    other = Replay(width=2, capacity=8)
    other.restart(first)
    other.add(replay.between(first, added))
    assert (other.added, other.first) == (added, first)
    np.testing.assert_array_equal(other.drawn(choices), replay.drawn(choices))


def test_rows_that_are_gone_are_not_handed_out() -> None:
    replay = Replay(width=2, capacity=4)
    replay.add(_numbered(0, 6))
    with pytest.raises(ValueError, match="not kept"):
        replay.between(1, 6)
    replay.restart(9)
    replay.add(_numbered(9, 11))
    assert (replay.added, replay.first) == (11, 9)
    with pytest.raises(ValueError, match="not kept"):
        replay.between(8, 11)
