import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv

from benchmarks.actors.real_actor import RealActor
from benchmarks.actors.rollout_contestant import BareSimulator, episodes
from benchmarks.claims.system.wire import rllib_columns


@pytest.mark.parametrize(("env_id", "hidden"), [("Hopper-v5", 1), ("Humanoid-v5", 2)])
def test_the_bare_simulator_arrives_where_the_actor_did(env_id: str, hidden: int) -> None:
    actor = RealActor(env_id)
    trajectory = actor.fragment(0)
    BareSimulator(actor, [trajectory]).run()
    env = actor.env.unwrapped
    assert isinstance(env, MujocoEnv)
    coordinates = env.data.qpos[hidden:]
    reached = trajectory.observation[-1, 0, : len(coordinates)]
    # It starts from float32 observations, and contacts amplify the difference.
    np.testing.assert_allclose(coordinates, reached, atol=0.02)


def test_episodes_cover_every_step_once_and_start_at_resets() -> None:
    trajectory = RealActor("Hopper-v5").fragment(0)
    parts = episodes(trajectory)
    assert np.array_equal(np.concatenate([a for _, a in parts]), trajectory.action[:, 0])
    assert len(parts) > 1
    # Hopper starts standing, 1.25 m high, give or take 5 mm.
    assert all(abs(observation[0] - 1.25) < 0.006 for observation, _ in parts)


def test_rllib_columns_hold_the_next_observation_of_every_step() -> None:
    actor = RealActor("CartPole-v1")
    trajectory = actor.fragment(0)
    columns = rllib_columns(actor, trajectory)
    steps = len(trajectory.reward)
    assert {len(column) for column in columns.values()} == {steps}
    going_on = ~(trajectory.terminated | trajectory.truncated)[:-1, 0]
    assert np.array_equal(columns["new_obs"][:-1][going_on], columns["obs"][1:][going_on])
