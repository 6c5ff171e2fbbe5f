"""Two small tasks: one that is seen by a camera and a vector, and one in which most actions end it.

`Camera-v0` is a walk on a grid. Where the walker stands is numbers alone, and where it has to go is
in the picture alone: neither part is enough.

`Dispatch-v0` gives each job to one of 16 machines, of which some 4 are free. A busy machine ends
the episode; a free one pays the more the less load it has.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import NDArray

SIDE, PIXELS = 5, 8
"""Fields of the grid's side, and pixels of a field's: pictures are 40 x 40."""
NUM_MACHINES, FREE = 16, 0.25
"""Machines, and the probability that one is free."""

Float32 = NDArray[np.float32]
_MOVES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])


class Camera(gymnasium.Env[Any, np.int64]):
    """An episode ends on the field in the picture, which pays 1; a step costs 0.02."""

    def __init__(self, **_: Any) -> None:
        size = SIDE * PIXELS
        self.observation_space = Dict(
            {
                "picture": Box(0, 255, (size, size, 1), np.uint8),
                "place": Box(-1.0, 1.0, (2,), np.float32),
            }
        )
        self.action_space = Discrete(4)
        self._place = self._goal = np.zeros(2, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Draw two different fields."""
        super().reset(seed=seed, options=options)
        fields = self.np_random.choice(SIDE**2, 2, replace=False)
        self._place, self._goal = np.stack(divmod(fields, SIDE), axis=1)
        return self._seen(), {}

    def step(
        self, action: np.int64
    ) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Go one field; the grid's edge holds."""
        self._place = np.clip(self._place + _MOVES[int(action)], 0, SIDE - 1)
        arrived = bool((self._place == self._goal).all())
        return self._seen(), float(arrived) - 0.02, arrived, False, {}

    def _seen(self) -> dict[str, NDArray[Any]]:
        picture = np.zeros((SIDE * PIXELS, SIDE * PIXELS, 1), np.uint8)
        row, column = self._goal * PIXELS
        picture[row : row + PIXELS, column : column + PIXELS] = 255
        place = (2 * self._place / (SIDE - 1) - 1).astype(np.float32)
        return {"picture": picture, "place": place}


class Dispatch(gymnasium.Env[Float32, np.int64]):
    """An episode is 64 jobs, or as many as went to free machines."""

    def __init__(self, **_: Any) -> None:
        self.observation_space = Box(0.0, 1.0, (2 * NUM_MACHINES,), np.float32)
        self.action_space = Discrete(NUM_MACHINES)
        self._load, self._free = np.zeros(NUM_MACHINES), np.ones(NUM_MACHINES, np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        """Draw the machines' loads, and which are free."""
        super().reset(seed=seed, options=options)
        return self._drawn(), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Give the job to a machine."""
        taken = bool(self._free[int(action)])
        reward = float(1 - self._load[int(action)]) if taken else 0.0
        return self._drawn(), reward, not taken, False, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which machines are free, as sb3-contrib asks for it."""
        return self._free

    def _drawn(self) -> Float32:
        self._load = self.np_random.random(NUM_MACHINES)
        self._free = self.np_random.random(NUM_MACHINES) < FREE
        self._free[self.np_random.integers(NUM_MACHINES)] = True
        return np.concatenate((self._load, self._free), dtype=np.float32)


gymnasium.register("Camera-v0", Camera, max_episode_steps=20)
gymnasium.register("Dispatch-v0", Dispatch, max_episode_steps=64)
