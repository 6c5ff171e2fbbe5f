"""Your own environment and its training in one file: `python examples/first_hour/reach.py`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

import nitro

Observation = NDArray[np.float32]


class Reach(gymnasium.Env[Observation, Observation]):
    """A point on a plane is pushed towards a goal; an episode ends there, or after 100 steps."""

    observation_space = Box(-10.0, 10.0, (4,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Put the point and the goal somewhere."""
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        self.steps = 0
        return self.state.copy(), {}

    def step(self, action: Observation) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Push the point."""
        self.state[:2] = np.clip(self.state[:2] + 0.1 * action, -10.0, 10.0)
        self.steps += 1
        distance = float(np.linalg.norm(self.state[:2] - self.state[2:]))
        return self.state.copy(), -distance, distance < 0.1, self.steps >= 100, {}


if __name__ == "__main__":
    run = nitro.train(Reach, total_steps=60_000, seed=1)
    print(run.evaluate(episodes=20))
    print(run.folder)
