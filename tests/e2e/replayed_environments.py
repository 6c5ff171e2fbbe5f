"""Pendulums whose state Nitro does not know, being subclasses."""

import os
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv

DETERMINISTIC_STEPS = 120
"""More than are played when an environment is described."""


class OwnPendulum(PendulumEnv):
    """The same seed and actions give the same episode."""


class LatePendulum(PendulumEnv):
    """They do not, late in an episode."""

    def reset(self, **more: Any) -> Any:
        self.num_steps = 0
        return super().reset(**more)

    def step(self, u: Any) -> Any:
        self.num_steps += 1
        observation, reward, *rest = super().step(u)  # type: ignore[no-untyped-call]
        wind = os.urandom(1)[0] if self.num_steps > DETERMINISTIC_STEPS else 0
        return observation, reward - wind, *rest


for name in ("OwnPendulum", "LatePendulum"):
    gymnasium.register(
        f"Replayed/{name}-v0", entry_point=f"{__name__}:{name}", max_episode_steps=200
    )
