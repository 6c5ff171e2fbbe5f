"""Gymnasium's time limit at minimal cost per step."""

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


class StepLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Truncates episodes after a number of steps, like Gymnasium's `TimeLimit` but cheaper.

    Wraps the bare environment directly, in place of the wrappers that `gymnasium.make` adds.
    """

    def __init__(self, env: Env, *, spec: EnvSpec | None) -> None:
        super().__init__(env)
        limit = spec.max_episode_steps if spec is not None else None
        self._spec = spec
        self._step = env.step
        self._limit = float("inf") if limit is None else limit
        self._elapsed = 0

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the steps since the reset."""
        return {"elapsed": np.array(self._elapsed)}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue counting from a saved state."""
        self._elapsed = int(state["elapsed"])

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override] # a property in `Wrapper`, too
        """The specification given to `gymnasium.make`, with its time limit."""
        return self._spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._elapsed = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the bare environment; truncate at the limit, even if it terminates there."""
        observation, reward, terminated, truncated, info = self._step(action)
        self._elapsed += 1
        return observation, reward, terminated, truncated or self._elapsed >= self._limit, info
