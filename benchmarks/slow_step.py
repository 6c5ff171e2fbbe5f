"""A simulator of 20 ms a step that needs no core: it waits, as one that asks a service does.

Importing this module registers `Benchmarks/SlowStep-v0`. Any number of it run at once on any
machine, so places can be compared on two cores.
"""

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

STEP_S = 0.02


class SlowStep(CartPoleEnv):
    """CartPole, 20 ms a step."""

    def step(self, action: Any) -> Any:
        """Wait, then step."""
        time.sleep(STEP_S)
        return super().step(action)  # type: ignore[no-untyped-call]


gymnasium.register(
    "Benchmarks/SlowStep-v0", entry_point=lambda **given: SlowStep(**given), max_episode_steps=500
)
