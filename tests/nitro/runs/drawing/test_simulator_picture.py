"""Pictures of simulations: what is seen is where geometry says it is."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from numpy.typing import NDArray

from nitro.runs.drawing.simulator_picture import HEIGHT, WIDTH, SimulatorPicture, draws


def mujoco_env(env_id: str) -> Any:
    env = gymnasium.make(env_id).unwrapped
    assert draws(env)
    env.reset(seed=1)
    return env


def brown(picture: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where the picture has the colour of the agent: the floor and the sky are grey and blue."""
    red, _, blue = np.moveaxis(picture.astype(int), 2, 0)
    found: NDArray[np.bool_] = red > blue + 25
    return found


def test_the_camera_keeps_up_with_an_agent_that_moves_on() -> None:
    env = mujoco_env("Hopper-v5")
    drawn = SimulatorPicture(env)
    for x in (0.0, 3.3, 101.0):  # its floor is 40 m long
        env.set_state(np.array([x, 1.25, 0, 0, 0, 0]), np.zeros(6))
        seen = drawn.draw()
        assert seen.shape == (HEIGHT, WIDTH, 3)
        assert seen[-20:].mean() < 215  # darker than the sky: it still walks on something
        rows, columns = np.nonzero(brown(seen))
        # It stands upright in the middle of the picture, and fills much of its height.
        assert columns.mean() == pytest.approx(WIDTH / 2, abs=8)
        assert np.ptp(columns) < WIDTH / 6
        assert 0.4 * HEIGHT < np.ptp(rows) < 0.9 * HEIGHT


def test_what_is_held_somewhere_moves_in_the_picture() -> None:
    env = mujoco_env("InvertedPendulum-v5")
    drawn = SimulatorPicture(env)
    middles = []
    for x in (-0.5, 0.5):
        env.set_state(np.array([x, 0.0]), np.zeros(2))
        rail = drawn.draw().astype(int)
        yellow = (rail[..., 0] > 90) & (rail[..., 2] < 60)
        middles.append(np.nonzero(yellow)[1].mean())
    # A metre at the distance of the rail: the picture is 2 d tan(fov / 2) high there.
    distance = env.mujoco_renderer.default_cam_config["distance"]
    height = 2 * distance * np.tan(np.deg2rad(env.model.vis.global_.fovy) / 2)
    assert middles[1] - middles[0] == pytest.approx(HEIGHT / height, rel=0.05)


def test_an_agent_throws_a_shadow() -> None:
    env = mujoco_env("Hopper-v5")
    drawn = SimulatorPicture(env)
    env.set_state(np.array([0, 1.25, 0, 0, 0, 0]), np.zeros(6))
    near = drawn.draw()[HEIGHT // 2 :]
    env.set_state(np.array([0, 60.0, 0, 0, 0, 0]), np.zeros(6))  # out of the picture
    empty = drawn.draw()[HEIGHT // 2 :]
    darker = (near.astype(int).sum(2) < empty.astype(int).sum(2) - 60) & ~brown(near)
    assert darker.mean() > 0.002


def test_an_environment_that_draws_itself_is_left_to_it() -> None:
    class Own(MujocoEnv):
        def render(self) -> None: ...

    assert not draws(Own.__new__(Own))
    assert not draws(gymnasium.make("CartPole-v1").unwrapped)
