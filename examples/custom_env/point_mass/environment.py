"""A point mass in the plane, pushed towards a goal."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

Vector = NDArray[np.float32]

_STEP_S = 0.1
_PIXELS = 128


class PointMass(gymnasium.Env[Vector, Vector]):
    """Ends when the mass rests at the goal, or by the time limit that it is registered with.

    Observations: position, velocity and goal (x and y each). Actions: the force on the mass.
    Reward: minus the distance to the goal, and minus a little for force.

    Args:
        friction: Share of its velocity that the mass loses per step.
        render_mode: `rgb_array` draws pictures, for videos.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    observation_space = Box(-np.inf, np.inf, (6,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, friction: float = 0.1, render_mode: str | None = None) -> None:
        if not 0 <= friction <= 1:
            raise ValueError(f"friction is {friction}, expected a number from 0 to 1")
        self.render_mode = render_mode
        self._friction = friction
        self._position, self._velocity, self._goal = np.zeros((3, 2), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Place mass and goal; everything random comes from `np_random`, which the seed decides."""
        super().reset(seed=seed)
        self._position, self._goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self._velocity = np.zeros(2, np.float32)
        return self._observation(), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Push the mass for a tenth of a second."""
        self._velocity = (1 - self._friction) * self._velocity + _STEP_S * action
        self._position = self._position + _STEP_S * self._velocity
        distance = float(np.linalg.norm(self._goal - self._position))
        reward = -distance - 0.01 * float(np.square(action).sum())
        rests = distance < 0.05 and float(np.linalg.norm(self._velocity)) < 0.05
        return self._observation(), reward, rests, False, {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return what the next step depends on; `np_random` is kept for every environment."""
        return {"position": self._position, "velocity": self._velocity, "goal": self._goal}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where another point mass was left."""
        self._position, self._velocity = state["position"], state["velocity"]
        self._goal = state["goal"]

    def render(self) -> NDArray[np.uint8]:
        """Return a picture [H, W, 3]: the goal green, the mass red."""
        picture = np.full((_PIXELS, _PIXELS, 3), 255, np.uint8)
        for place, colour in ((self._goal, (0, 160, 0)), (self._position, (200, 0, 0))):
            x, y = ((place + 2) / 4 * _PIXELS).clip(4, _PIXELS - 4).astype(int)
            picture[y - 3 : y + 3, x - 3 : x + 3] = colour
        return picture

    def _observation(self) -> Vector:
        return np.concatenate((self._position, self._velocity, self._goal))
