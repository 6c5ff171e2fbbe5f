"""Return values of Gymnasium's `reset` and `step`, and messages for environments that differ.

Rollouts unpack what comes without looking at it: a check would cost every step. So what went wrong
is found out afterwards, from the error and where it was raised.
"""

import inspect
import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from shared.environments.told_errors import error_text

Env = gymnasium.Env[Any, Any]

RESET_RETURNS = "Gymnasium's reset returns two values: an observation, and a dict of information"
STEP_RETURNS = (
    "Gymnasium's step returns five values: observation, reward, terminated, truncated, and a dict "
    "of information (old Gym's had `done` for the third and fourth)"
)
_UNPACKING = re.compile(r"values to unpack \(expected ([25])\b")
_BETWEEN = ("functions.", "gymnasium.core", "gymnasium.wrappers.", "nitro.", "shared.")
"""Modules that call environments, and are none."""


def require_start(start: object) -> object:
    """Return the observation of what `reset` returned.

    Raises:
        TypeError: It is not what Gymnasium's returns.
    """
    if not (isinstance(start, Sequence) and len(start) == 2 and isinstance(start[1], Mapping)):
        raise TypeError(f"reset returned {_shown(start)}; {RESET_RETURNS}")
    return start[0]


def require_reward(reward: object) -> float:
    """Return a reward as a number.

    Raises:
        TypeError: It is none, or several.
    """
    if not _is_number(reward):
        raise TypeError(f"step returned the reward {_shown(reward)}; a reward is one number")
    return float(reward)  # type: ignore[arg-type] # it is a number


def what_went_wrong(error: BaseException, env: Env) -> str:
    """Return what to say of an error that calling an environment ended in.

    Where the environment returned what cannot be used, it is named with the line of its method.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or not str(frames[-1].f_globals.get("__name__", "")).startswith(_BETWEEN):
        return error_text(error)  # the environment itself raised it
    unpacking = _UNPACKING.search(error_text(error)) if isinstance(error, ValueError) else None
    if unpacking is not None:
        method, returns = ("reset", RESET_RETURNS), ("step", STEP_RETURNS)
        name, said = method if unpacking.group(1) == "2" else returns
        return f"{said}: {error_text(error)}{_place(env, name)}"
    rewards = (frame.f_locals["reward"] for frame in frames if "reward" in frame.f_locals)
    for reward in rewards:
        if not _is_number(reward):
            said = f"step returned the reward {_shown(reward)}; a reward is one number"
            return f"{said}{_place(env, 'step')}"
    return error_text(error)


def _is_number(value: Any) -> bool:
    try:
        return np.ndim(value) == 0 and isinstance(float(value), float)
    except (TypeError, ValueError):
        return False


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80} ({type(value).__name__})"
    except Exception:  # its own code may raise anything
        return f"a {type(value).__name__}"


def _place(env: Env, method: str) -> str:
    """Return where a method of an environment is, as a traceback shows it."""
    code = getattr(inspect.unwrap(getattr(type(env.unwrapped), method)), "__code__", None)
    if code is None:
        return ""
    return f'\n  File "{code.co_filename}", line {code.co_firstlineno}, in {method}'
