"""Where episodes ended, against batches whose episodes are known."""

import numpy as np
import pytest

from nitro.integrations.endings import Ending, endings
from nitro.pool.batch import Batch, batch_of
from nitro.pool.policy import Policy
from shared.contracts.environment_spec import (
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.trajectory.trajectory import Trajectory

ENVIRONMENT = EnvironmentSpec(
    env_id="Known-v0",
    observation=ObservationSpec(shape=(1,), dtype="float32"),
    action=DiscreteActionSpec(n=2),
    max_episode_steps=None,
    versions={},
)


def trajectory(
    actor: int, ends: list[list[int]], reported: list[tuple[float, int]], *, steps: int = 4
) -> Trajectory:
    """An actor with a column for each list of steps at which episodes terminate."""
    terminated = np.zeros((steps, len(ends)), np.bool_)
    for column, at in enumerate(ends):
        terminated[at, column] = True
    return Trajectory(
        job_id="known-0000",
        round=0,
        actor_index=actor,
        policy_version=0,
        observation=np.zeros((steps + 1, len(ends), 1), np.float32),
        final_observation=np.zeros((0, 1), np.float32),
        action=np.zeros((steps, len(ends)), np.int64),
        reward=np.ones((steps, len(ends)), np.float32),
        terminated=terminated,
        truncated=np.zeros_like(terminated),
        log_prob=np.zeros((steps, len(ends)), np.float32),
        episode_returns=np.array([each for each, _ in reported], np.float32),
        episode_lengths=np.array([length for _, length in reported], np.int32),
    )


def batch(*trajectories: Trajectory) -> Batch:
    nothing = Policy(weights=(), biases=())
    return batch_of(
        trajectories, ENVIRONMENT, policy=nothing, num_launched=len(trajectories), bill=lambda: None
    )


def test_returns_belong_to_the_ends_of_their_actor_in_the_order_of_time() -> None:
    found = endings(
        batch(
            trajectory(3, [[2], [0, 2]], [(5.0, 5), (7.0, 9), (2.0, 2)]),
            trajectory(1, [[1]], [(11.0, 11)]),
        )
    )
    known = [(1, 2, 11.0, 11), (0, 1, 5.0, 5), (2, 0, 7.0, 9), (2, 1, 2.0, 2)]
    assert sorted(found, key=lambda e: (e.step, e.column)) == sorted(
        (Ending(step=s, column=c, episode_return=r, length=n) for s, c, r, n in known),
        key=lambda e: (e.step, e.column),
    )


@pytest.mark.parametrize("reported", [[], [(3.0, 12)]])
def test_games_of_several_lives_have_no_single_end(reported: list[tuple[float, int]]) -> None:
    assert endings(batch(trajectory(0, [[0, 1, 3]], reported))) == []
