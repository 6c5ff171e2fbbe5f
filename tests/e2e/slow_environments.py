"""An environment whose steps take a while, so that functions are worth their price."""

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class SlowCartPole(CartPoleEnv):
    """CartPole that waits in every step."""

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return super().step(action)  # type: ignore[no-untyped-call]


gymnasium.register(
    "SlowCartPole-v0", entry_point=lambda **given: SlowCartPole(**given), max_episode_steps=100
)
