"""Step time of a slow environment, measured where actors run."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import gymnasium

from shared.environments.adapters import sampled_action

_STEPS = 3
_SLOW_S = 0.001
"""Faster steps are not reported: an actor plays as many as it may have within its default time."""


def slow_step_s(
    env: gymnasium.Env[Any, Any],
    while_trying: Callable[[], contextlib.AbstractContextManager[None]],
) -> float:
    """Return the seconds of the fastest of a few steps; 0 if a step is fast or fails.

    Args:
        env: The environment; it is reset first.
        while_trying: Makes a context for each reset and each step, which ends a call that hangs.
    """
    times = list[float]()
    ended = True
    try:
        while len(times) < _STEPS:
            if ended:
                with while_trying():
                    observation, _ = env.reset()
            with while_trying():
                action = sampled_action(env, observation)
                begun = time.perf_counter()
                observation, _, terminated, truncated, _ = env.step(action)
                times.append(time.perf_counter() - begun)
            if times[-1] < _SLOW_S:
                return 0.0
            ended = bool(terminated or truncated)
    except Exception:  # an environment may raise anything; training will report it
        return 0.0
    return round(min(times), 4)
