"""A car on a winding road: an environment as users write them, which cannot save its state.

It stands in for CarRacing, with a vector in place of the image. Importing this module registers
`Benchmarks/Road-v0`, whose episodes last 1,000 steps if the car stays on the road. It needs nothing
of ours, so other libraries train on it, too.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

_STEP_S = 0.05
_WHEELBASE_M = 2.5
_HALF_WIDTH_M = 4.0
_TOP_SPEED_MPS = 20.0
_ACCELERATION_MPS2 = 6.0
_MOST_STEERING_RAD = 0.5
_WAVES_M = (180.0, 95.0, 55.0)
"""Lengths of the waves that the road's curvature is the sum of."""
_CURVATURE_PER_M = 0.012
"""Largest curvature of one wave."""
_AHEAD_M = (0.0, 5.0, 10.0, 20.0, 35.0)
"""Distances at which the driver sees how the road bends."""


class Road(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Rewards metres driven along the road, a tenth each; leaving it ends the episode with -10."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (3 + len(_AHEAD_M),), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._phases: list[float] = []
        self._along_m = self._offset_m = self._heading_rad = self._speed_mps = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin at rest, anywhere on a new road."""
        super().reset(seed=seed, options=options)
        self._phases = [float(self.np_random.uniform(0, 2 * math.pi)) for _ in _WAVES_M]
        self._along_m, self._speed_mps = 0.0, 0.0
        self._offset_m = float(self.np_random.uniform(-1, 1))
        self._heading_rad = float(self.np_random.uniform(-0.1, 0.1))
        return self._observation(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Steer and accelerate for a twentieth of a second.

        A kinematic bicycle in coordinates of the road: the way along it, the offset from its
        middle, and the heading against it.
        """
        steering, throttle = (min(1.0, max(-1.0, float(part))) for part in action)
        speed = self._speed_mps + throttle * _ACCELERATION_MPS2 * _STEP_S
        self._speed_mps = min(_TOP_SPEED_MPS, max(0.0, speed))
        curvature = self._curvature(self._along_m)
        driven_m = self._speed_mps * _STEP_S
        turned = driven_m * math.tan(steering * _MOST_STEERING_RAD) / _WHEELBASE_M
        along_m = driven_m * math.cos(self._heading_rad) / (1.0 - self._offset_m * curvature)
        self._offset_m += driven_m * math.sin(self._heading_rad)
        self._heading_rad += turned - curvature * along_m
        self._along_m += along_m
        left = abs(self._offset_m) > _HALF_WIDTH_M or abs(self._heading_rad) > math.pi / 2
        return self._observation(), along_m / 10 - 10.0 * left, left, False, {}

    def _curvature(self, along_m: float) -> float:
        waves = zip(_WAVES_M, self._phases, strict=True)
        angles = (2 * math.pi * along_m / length + phase for length, phase in waves)
        return _CURVATURE_PER_M * sum(math.sin(angle) for angle in angles)

    def _observation(self) -> NDArray[np.float32]:
        ahead = [self._curvature(self._along_m + distance) * 25 for distance in _AHEAD_M]
        place = [self._offset_m / _HALF_WIDTH_M, self._heading_rad, self._speed_mps / 10]
        return np.clip(np.array([*place, *ahead], np.float32), -10.0, 10.0)


gymnasium.register("Benchmarks/Road-v0", entry_point=f"{__name__}:Road", max_episode_steps=1000)
