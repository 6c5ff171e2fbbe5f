"""Bounds for actions that have none."""

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


class BoundAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Bounds continuous actions between two numbers, where the environment has no bound of its own.

    A policy's actions are scaled to the bounds of the action space, so it needs bounds. Actions
    reach the environment unchanged.
    """

    def __init__(self, env: Env, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        inner = env.action_space
        if not isinstance(inner, Box):
            raise TypeError(f"actions {inner} have no bounds to set")
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"low ({low}) and high ({high}) must be finite, and in this order")
        lowest = np.where(np.isfinite(inner.low), inner.low, low)
        highest = np.where(np.isfinite(inner.high), inner.high, high)
        kind = cast("Any", inner.dtype).type
        self.action_space = Box(lowest.astype(kind), highest.astype(kind), dtype=kind)

    def action(self, action: Any) -> Any:
        """Return the action unchanged."""
        return action
