"""Action masks that an environment returns beside its observations."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, MultiBinary
from numpy.typing import NDArray

from shared.environments.parts import MASK
from shared.environments.spaces import num_choices

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


class ActionMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the action mask to the observation, where policies obey it.

    The mask is the result of the environment's `action_masks()`, as in sb3-contrib, or else
    `action_mask` of its `info`, as in Gymnasium's toy text.
    """

    def __init__(self, env: Env) -> None:
        """Wrap an environment.

        Raises:
            TypeError: Its actions are not discrete.
        """
        super().__init__(env)
        size = num_choices(env.action_space)
        if size is None:
            raise TypeError(f"actions {env.action_space} are no choices that could be forbidden")
        inner = env.observation_space
        parts = inner.spaces if isinstance(inner, Dict) else {"observation": inner}
        self.observation_space = Dict({**parts, MASK: MultiBinary(size)})
        self._size = size
        self._masks = env.get_wrapper_attr("action_masks") if _has_masks(env) else None

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Reset; return the observation with the mask."""
        observation, info = self.env.reset(**given)
        return self._with_mask(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; return the observation with the mask."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(observation, info), reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        mask = self._mask(info)
        parts = observation if isinstance(observation, dict) else {"observation": observation}
        return {**parts, MASK: mask}

    def _mask(self, info: dict[str, Any]) -> NDArray[np.int8]:
        if self._masks is None and MASK not in info:
            raise ValueError(f"the environment has no action_masks(), and its info no {MASK!r}")
        given = info[MASK] if self._masks is None else self._masks()
        parts = given if isinstance(given, tuple | list) else (given,)
        return np.concatenate([np.asarray(part, np.int8).reshape(-1) for part in parts])


def _has_masks(env: Env) -> bool:
    try:
        return callable(env.get_wrapper_attr("action_masks"))
    except AttributeError:
        return False
