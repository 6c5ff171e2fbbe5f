"""A package of one's own environments, registered when an actor imports it; most misbehave."""

import os
import time
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

EPISODE = 8
"""Steps."""


class OddEnvironment(gymnasium.Env[Any, Any]):
    """Shows two numbers and pays for choosing both; `trouble` begins at a step of its process.

    Args:
        trouble: What goes wrong: `nan` now and then, `always_nan`, `hang`, `crash`, `raise`,
            `shape`.
        after: Steps of this process before it does; 1 is what asking for its spaces takes.
    """

    action_space: Space[Any] = MultiDiscrete([2, 3])
    observation_space: Space[Any] = Box(0, 1, (5,), np.float32)

    def __init__(self, trouble: str = "none", after: int = 20) -> None:
        self.trouble, self.after = trouble, after
        self.total = self.elapsed = 0
        self.wanted = np.zeros(2, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        reward = float((action == self.wanted).sum())
        self.total, self.elapsed = self.total + 1, self.elapsed + 1
        observation = self._observation()
        if self.total > self.after:
            reward, observation = self._trouble(reward, observation)
        return observation, reward, self.elapsed >= EPISODE, False, {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return a state, so that nobody repeats episodes to find out what they are."""
        return {"elapsed": np.array(self.elapsed)}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from there."""
        self.elapsed = int(state["elapsed"])

    def _observation(self) -> NDArray[np.float32]:
        self.wanted = self.np_random.integers((2, 3))
        shown = np.zeros(5, np.float32)
        shown[self.wanted + (0, 2)] = 1
        return shown

    def _trouble(
        self, reward: float, observation: NDArray[np.float32]
    ) -> tuple[float, NDArray[np.float32]]:
        if self.trouble == "hang":
            time.sleep(3600)
        if self.trouble == "crash":
            os.abort()
        if self.trouble == "raise":
            raise ZeroDivisionError("friction is 0")
        if self.trouble == "shape":
            observation = observation[:4]
        if self.trouble == "always_nan" or (
            self.trouble == "nan" and self.np_random.random() < 0.05
        ):
            reward = float("nan")
        return reward, observation


class TwoParts(OddEnvironment):
    """Observations in two parts."""

    observation_space = Dict(first=Discrete(2), second=Discrete(3))

    def _observation(self) -> Any:
        super()._observation()
        return {"first": self.wanted[0], "second": self.wanted[1]}


class Forbidding(gymnasium.Env[Any, Any]):
    """Pays for nothing but the steps it goes on for; an action that is not allowed ends it.

    One of four actions is allowed, another one at each step, and nothing but the mask says which.
    """

    action_space = Discrete(4)
    observation_space = Box(0, 1, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        self.allowed = int(self.np_random.integers(4))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        was_allowed, self.elapsed = int(action) == self.allowed, self.elapsed + 1
        self.allowed = int(self.np_random.integers(4))
        ended = not was_allowed or self.elapsed >= EPISODE
        return np.zeros(1, np.float32), float(was_allowed), ended, False, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return what sb3-contrib asks for."""
        mask: NDArray[np.bool_] = np.arange(4) == self.allowed
        return mask


class Faulty(OddEnvironment):
    """Kills its process or raises at chosen episodes, each the first time only.

    Args:
        faults: Seeds of these episodes as text, with commas; every other one raises. What has
            happened is noted in the folder of the variable `ODD_NOTES`.
    """

    def __init__(self, faults: str = "") -> None:
        super().__init__()
        self.faults, self.notes = faults.split(","), Path(os.environ.get("ODD_NOTES", ""))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        name = f"{(seed or 0) % 10**6}"
        if seed is not None and name in self.faults and not (self.notes / name).exists():
            (self.notes / name).touch()
            if self.faults.index(name) % 2:
                raise ZeroDivisionError("friction is 0")
            os.abort()
        return super().reset(seed=seed)


class Picture(OddEnvironment):
    """The two numbers as stripes of a picture, one choice to make."""

    action_space = Discrete(2)
    observation_space = Box(0, 255, (40, 48, 3), np.uint8)

    def _observation(self) -> Any:
        super()._observation()
        picture = np.zeros((40, 48, 3), np.uint8)
        picture[: 20 * (1 + self.wanted[0]), :, self.wanted[1]] = 255
        return picture


class Eyes(OddEnvironment):
    """Two pictures of different sizes, each with one of the numbers, beside other parts."""

    action_space = Discrete(2)
    observation_space = Dict(
        left=Box(0, 255, (40, 48, 3), np.uint8),
        right=Box(0, 255, (36, 36), np.uint8),
        state=Box(-9, 9, (3,), np.float32),
        second=Discrete(3),
    )

    def _observation(self) -> Any:
        super()._observation()
        first, second = self.wanted
        left = np.zeros((40, 48, 3), np.uint8)
        left[:, :, second] = 255
        right = np.full((36, 36), 255 * first, np.uint8)
        state = np.array([first, second, 1], np.float32)
        return {"left": left, "right": right, "state": state, "second": second}


gymnasium.register("Odd/Odd-v0", entry_point=f"{__name__}:OddEnvironment")
gymnasium.register("Odd/Faulty-v0", entry_point=f"{__name__}:Faulty")
gymnasium.register("Odd/Picture-v0", entry_point=f"{__name__}:Picture")
gymnasium.register("Odd/Forbidding-v0", entry_point=f"{__name__}:Forbidding")
gymnasium.register("Odd/TwoParts-v0", entry_point=f"{__name__}:TwoParts")
gymnasium.register("Odd/Eyes-v0", entry_point=f"{__name__}:Eyes")
