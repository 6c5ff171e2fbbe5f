"""Remembering must not show: every number is that of the environment left alone."""

from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

from shared.environments.mujoco_memo import remember_answers


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("Hopper-v5", {}),
        ("Hopper-v5", {"healthy_state_range": (-2.0, 2.0), "healthy_z_range": (0.0, 9.0)}),
        ("Walker2d-v5", {}),
        ("Humanoid-v5", {}),
        ("HumanoidStandup-v5", {}),
        ("Humanoid-v4", {}),
        ("Ant-v5", {}),
        ("HalfCheetah-v5", {}),
    ],
)
def test_a_remembering_environment_steps_like_one_left_alone(
    env_id: str, kwargs: dict[str, Any]
) -> None:
    plain: Any = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    remembering: Any = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    remember_answers(remembering)
    rng = np.random.default_rng(0)
    ends = 0
    for env in (plain, remembering):
        env.reset(seed=7)
    for _ in range(400):
        action = rng.uniform(-1, 1, plain.action_space.shape).astype(np.float32)
        action *= plain.action_space.high
        expected, got = plain.step(action), remembering.step(action)
        np.testing.assert_array_equal(got[0], expected[0])
        assert got[1:4] == expected[1:4]
        assert got[4].keys() == expected[4].keys()
        for name, value in expected[4].items():
            np.testing.assert_array_equal(got[4][name], value)
        if expected[2]:
            ends += 1
            np.testing.assert_array_equal(remembering.reset()[0], plain.reset()[0])
            assert remembering.is_healthy == plain.is_healthy
    assert ends > 0 or env_id in ("Ant-v5", "HalfCheetah-v5", "HumanoidStandup-v5")
    plain.close()
    remembering.close()


def test_an_environment_without_health_is_left_alone() -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    kind = type(env)
    remember_answers(env)
    assert type(env) is kind
    env.close()


def test_a_subclass_of_ones_own_is_left_alone() -> None:
    class Falling(HopperEnv):
        """Moves on by itself after the library's step."""

    env = cast("Any", Falling())
    remember_answers(env)
    kind = type(env)
    env.close()
    assert kind is Falling
