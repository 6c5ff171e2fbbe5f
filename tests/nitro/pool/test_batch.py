"""Batches: columns side by side, and what ends where."""

import numpy as np
import pytest
import torch

from nitro.pool.batch import Batch, batch_of
from nitro.pool.policy import Policy
from shared.contracts.environment_spec import (
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.trajectory.trajectory import Trajectory

ENVIRONMENT = EnvironmentSpec(
    env_id="Any-v0",
    observation=ObservationSpec(shape=(1,), dtype="float32"),
    action=DiscreteActionSpec(n=2),
    max_episode_steps=None,
    versions={},
)
POLICY = Policy(weights=(np.zeros((2, 1), np.float32),), biases=(np.zeros(2, np.float32),))
STEPS = 4


def trajectory(
    actor: int,
    *,
    envs: int = 1,
    terminated: tuple[tuple[int, int], ...] = (),
    truncated: tuple[tuple[int, int], ...] = (),
) -> Trajectory:
    """Observations that tell where they are from: `100 * actor + 10 * environment + step`."""
    shape = (STEPS, envs)
    where = 100.0 * actor + 10.0 * np.arange(envs) + np.arange(STEPS + 1)[:, np.newaxis]
    ends, cuts = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for at in terminated:
        ends[at] = True
    for at in truncated:
        cuts[at] = True
    cut = np.argwhere(cuts & ~ends)
    ended = int((ends | cuts).sum())
    finals = np.array([[1000.0 + 100 * actor + 10 * b + t] for t, b in cut], np.float32)
    return Trajectory(
        job_id="any-1",
        round=3,
        actor_index=actor,
        policy_version=3,
        observation=where[..., np.newaxis].astype(np.float32),
        final_observation=finals.reshape(-1, 1),
        action=np.zeros(shape, np.int64),
        reward=np.ones(shape, np.float32),
        log_prob=np.full(shape, -0.7, np.float32),
        episode_returns=np.full(ended, 5.0 + actor, np.float32),
        episode_lengths=np.full(ended, 5, np.int32),
        terminated=ends,
        truncated=cuts,
    )


def batch(*trajectories: Trajectory, num_launched: int = 4) -> Batch:
    return batch_of(
        trajectories, ENVIRONMENT, policy=POLICY, num_launched=num_launched, bill=lambda: 0.25
    )


def test_each_environment_of_an_actor_is_a_column_and_lost_actors_have_none() -> None:
    found = batch(trajectory(0, envs=2), trajectory(3, envs=2))
    assert found.observations.shape == (STEPS, 4, 1)
    assert found.observations[1, :, 0].tolist() == [1.0, 11.0, 301.0, 311.0]
    assert found.last_observations[:, 0].tolist() == [4.0, 14.0, 304.0, 314.0]
    assert found.actors.tolist() == [0, 0, 3, 3]
    assert found.versions.tolist() == [3, 3, 3, 3]
    assert (found.num_steps, found.num_columns, found.num_launched) == (16, 4, 4)
    assert (found.round, found.cost_usd) == (3, 0.25)


def test_final_observations_are_by_column_then_by_step() -> None:
    found = batch(
        trajectory(0, envs=2, truncated=((0, 1), (1, 0), (2, 1))),
        trajectory(1, truncated=((3, 0),)),
    )
    where = list(zip(found.final_columns.tolist(), found.final_steps.tolist(), strict=True))
    assert where == [(0, 1), (1, 0), (1, 2), (2, 3)]
    assert found.final_observations[:, 0].tolist() == [1001.0, 1010.0, 1012.0, 1103.0]
    assert found.returns.tolist() == [5.0, 5.0, 5.0, 6.0]
    assert found.lengths.tolist() == [5, 5, 5, 5]


def test_flat_steps_are_time_first() -> None:
    flat = batch(trajectory(0), trajectory(1)).flat()
    assert flat.observations[:4, 0].tolist() == [0.0, 100.0, 1.0, 101.0]
    assert flat.rewards.shape == (8,)


def test_parts_of_episodes_cover_every_step_once() -> None:
    found = batch(trajectory(0, terminated=((1, 0),), truncated=((2, 0),)), trajectory(1))
    parts = found.episodes()
    assert [(part.column, part.first_step, len(part.rewards)) for part in parts] == [
        (0, 0, 2),
        (0, 2, 1),
        (0, 3, 1),
        (1, 0, 4),
    ]
    assert [(part.terminated, part.truncated) for part in parts] == [
        (True, False),
        (False, True),
        (False, False),
        (False, False),
    ]
    lasts = [
        None if part.last_observation is None else float(part.last_observation[0]) for part in parts
    ]
    # Of a terminated one nobody needs it; that of a cut one is no longer among the observations.
    assert lasts == [None, 1002.0, 4.0, 104.0]


def test_a_step_that_is_both_counts_as_terminated() -> None:
    found = batch(trajectory(0, terminated=((3, 0),), truncated=((3, 0),)))
    (part,) = found.episodes()
    assert (part.terminated, part.truncated) == (True, False)
    assert part.last_observation is not None
    assert found.final_observations.shape == (0, 1)


def test_tensors_have_the_arrays_names_and_values() -> None:
    found = batch(trajectory(0, truncated=((1, 0),)))
    tensors = found.torch("cpu")
    for name, tensor in tensors.arrays.items():
        assert torch.equal(tensor, torch.tensor(getattr(found, name))), name
    assert tensors.final_steps.tolist() == [1]


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        batch(trajectory(0)).rewards[0, 0] = 2.0
