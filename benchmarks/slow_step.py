"""A simulator of 20 ms a step that needs no core: it waits, as one that asks a service does.

Importing this module registers `Benchmarks/SlowStep-v0`. Any number of it run at once on any
machine, so places can be compared on two cores.
"""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

STEP_S = 0.02


class SlowStep(CartPoleEnv):
    """CartPole, 20 ms a step."""

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step, then wait."""
        time.sleep(STEP_S)
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward), terminated, truncated, info


gymnasium.register("Benchmarks/SlowStep-v0", SlowStep, max_episode_steps=500)
