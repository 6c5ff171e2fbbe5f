"""The road: Gymnasium's own checks, and what driving on it returns."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from benchmarks.road import Road


def test_gymnasium_finds_nothing_wrong() -> None:
    check_env(Road(), skip_render_check=True)


def test_a_car_that_stands_still_gets_nothing_and_its_episode_lasts_to_the_limit() -> None:
    env = gymnasium.make("Benchmarks/Road-v0")
    env.reset(seed=0)
    steps = [env.step(np.array([0, -1], np.float32)) for _ in range(1000)]
    assert [reward for _, reward, *_ in steps] == pytest.approx([0.0] * 1000)
    assert [truncated for *_, truncated, _ in steps] == [False] * 999 + [True]


def test_steering_along_the_middle_returns_a_tenth_of_the_metres_driven() -> None:
    env = Road()
    observation, _ = env.reset(seed=1)
    total, driven_m = 0.0, 0.0
    for _ in range(1000):
        offset, heading, speed, _, bend, *_ = map(float, observation)
        steering = math.atan(0.1 * bend) / 0.5 - 0.5 * offset - heading
        throttle = 1.0 if speed < 1.5 else 0.0
        observation, reward, left, _, _ = env.step(np.array([steering, throttle], np.float32))
        total += float(reward)
        driven_m += 0.05 * 10 * float(observation[2])
        assert not left
    assert total == pytest.approx(driven_m / 10, rel=0.02)


def test_leaving_the_road_ends_the_episode_and_costs_ten() -> None:
    env = Road()
    env.reset(seed=2)
    for _ in range(1000):
        _, reward, left, _, _ = env.step(np.array([1, 1], np.float32))
        if left:
            break
    assert left
    assert -10.0 <= float(reward) < -9.8
